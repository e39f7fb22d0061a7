"""`producer status` for people: a table of jobs and a line about the workers, on stdout."""

from rich.console import Console
from rich.table import Table

from producer.status import JobStatus, Status


def print_status(status: Status, *, one: bool) -> None:
    """All jobs in a table; with `one`, all that is known of the one job."""
    console = Console(highlight=False, soft_wrap=True)
    if one:
        for name, value in rows(status.jobs[0]):
            console.print(f"{name:<10} {value}", markup=False)
        return
    console.print(make_table(status.jobs) if status.jobs else "no jobs")
    ready = sum(worker.state == "ready" for worker in status.workers)
    where = f"on {status.redis}" if status.redis else "(Redis is not reached; this is what the folder of jobs says)"
    console.print(f"{len(status.workers)} live workers, {ready} of them ready {where}", markup=False)


def make_table(jobs: list[JobStatus]) -> Table:
    """A row a job."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("job", "state"):
        table.add_column(column, no_wrap=True)
    for column in ("done", "total", "failed"):
        table.add_column(column, justify="right")
    table.add_column("host")
    for job in jobs:
        counts = [number(count) for count in map(job.counts.get, ("done", "total", "failed"))]
        table.add_row(job.job, job.state, *counts, job.host or "-")
    return table


def rows(job: JobStatus) -> list[tuple[str, str]]:
    """What is known of one job."""
    lines = [("job", job.job), ("state", f"{job.state}: {job.reason}" if job.reason else job.state)]
    lines += [(name, number(count)) for name, count in job.counts.items()]
    places = ("exit_code", "host", "directory", "output", "collector")
    lines += [("tag", f"{key}={value}") for key, value in job.tags.items()]
    return lines + [(name, str(value)) for name in places if (value := getattr(job, name)) is not None]


def number(count: int | None) -> str:
    """A count, `-` where it is not known."""
    return "-" if count is None else f"{count:,}"
