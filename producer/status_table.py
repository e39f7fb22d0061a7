"""`producer status` for people: a table of jobs and a line about the workers, on stdout."""

from datetime import datetime

from rich.console import Console
from rich.table import Table

from producer.outlook import Outlook
from producer.progress import describe_duration
from producer.status import JobStatus, Status
from producer.usage import cost_of


def print_status(status: Status, *, one: bool, gpu_hourly_cost: float | None = None) -> None:
    """All jobs in a table; with `one`, all that is known of the one job."""
    console = Console(highlight=False, soft_wrap=True)
    if one:
        for name, value in rows(status.jobs[0], gpu_hourly_cost=gpu_hourly_cost):
            console.print(f"{name:<10} {value}", markup=False)
        return
    console.print(make_table(status.jobs, gpu_hourly_cost=gpu_hourly_cost) if status.jobs else "no jobs")
    console.print(describe_workers(status), markup=False)


def describe_workers(status: Status) -> str:
    """How many there are, and where that was asked."""
    ready = sum(worker.state == "ready" for worker in status.workers)
    where = f"on {status.redis}" if status.redis else "(Redis is not reached; this is what the folder of jobs says)"
    return f"{len(status.workers)} live workers, {ready} of them ready {where}"


def make_table(jobs: list[JobStatus], *, gpu_hourly_cost: float | None = None) -> Table:
    """A row a job."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("job", "state"):
        table.add_column(column, no_wrap=True)
    figures = ("done", "total", "failed") + ("cost",) * (gpu_hourly_cost is not None)
    for column in figures:
        table.add_column(column, justify="right")
    table.add_column("host")
    for job in jobs:
        counts = [number(count) for count in map(job.counts.get, ("done", "total", "failed"))]
        if gpu_hourly_cost is not None:
            counts.append(f"{cost_of(job.gpu_s, per_hour=gpu_hourly_cost):,.2f}")
        table.add_row(job.job, job.state, *counts, job.host or "-")
    return table


def rows(job: JobStatus, *, gpu_hourly_cost: float | None = None) -> list[tuple[str, str]]:
    """What is known of one job."""
    lines = [("job", job.job), ("state", f"{job.state}: {job.reason}" if job.reason else job.state)]
    lines += [(name, number(count)) for name, count in job.counts.items()]
    lines += [
        ("tokens", f"{job.prompt_tokens:,} in, {job.completion_tokens:,} out"),
        ("gpu time", describe_gpu_time(job, gpu_hourly_cost=gpu_hourly_cost)),
    ]
    if job.outlook is not None:
        left_s, limit = job.outlook.left_s, f"{job.outlook.bottleneck}: {job.outlook.why}"
        lines += [("left", "-" if left_s is None else describe_duration(left_s)), ("limit", limit)]
    if job.deadline is not None:
        lines.append(("deadline", describe_deadline(job)))
    places = ("exit_code", "host", "directory", "output", "collector")
    lines += [("tag", f"{key}={value}") for key, value in job.tags.items()]
    return lines + [(name, str(value)) for name in places if (value := getattr(job, name)) is not None]


def describe_gpu_time(job: JobStatus, *, gpu_hourly_cost: float | None) -> str:
    """`2 h 5 min`, and what it costs where that is known."""
    text = describe_duration(job.gpu_s)
    if gpu_hourly_cost is None:
        return text
    cost = cost_of(job.gpu_s, per_hour=gpu_hourly_cost)
    per_million = f", {1e6 * cost / job.tokens:,.2f} a million tokens" if job.tokens else ""
    return f"{text}, cost {cost:,.2f} at {gpu_hourly_cost:,.2f} an hour{per_million}"


def describe_deadline(job: JobStatus) -> str:
    """The moment in local time, the margin or what is missing, and how many results are late."""
    if job.deadline is None:
        return "none"
    parts = [f"{datetime.fromisoformat(job.deadline).astimezone():%Y-%m-%d %H:%M:%S}"]
    if job.outlook is not None:
        parts += _describe_margin(job.outlook)
    if job.late:
        parts.append(f"{job.late:,} results late")
    return ", ".join(parts)


def _describe_margin(outlook: Outlook) -> list[str]:
    margin_s, needed = outlook.margin_s, outlook.workers_needed
    parts = []
    if margin_s is not None:
        parts.append(f"{'margin' if margin_s >= 0 else 'LATE by'} {describe_duration(abs(margin_s))}")
    elif outlook.is_at_risk:
        parts.append("AT RISK, no end told")
    if needed is not None:
        parts.append(f"{needed} workers would make it")
    return parts


def number(count: int | None) -> str:
    """A count, `-` where it is not known."""
    return "-" if count is None else f"{count:,}"
