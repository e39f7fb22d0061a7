"""What `status --watch` shows of one job on a screen of 80 columns, and in one line where there is no screen."""

from datetime import datetime, timedelta

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from producer.fleet import Worker
from producer.progress import describe_duration, describe_size
from producer.status import JobStatus, Status
from producer.status_table import describe_deadline, describe_gpu_time

BAR_CELLS = 40
SILENT_S = 30.0
"""A collector speaks every 2 s; clocks of hosts differ a little."""
MOST_WORKERS = 12
"""More are told by their number: the page stays on a small screen."""


def make_page(status: Status, job: JobStatus, *, now: datetime, gpu_hourly_cost: float | None) -> RenderableType:
    """All of it. `now` is aware."""
    lines = [f"{job.job}  {job.state.replace('_', ' ')}  {now.astimezone():%H:%M:%S}", _bar(job)]
    lines += [f"{name:<10} {value}" for name, value in facts(job, now=now, gpu_hourly_cost=gpu_hourly_cost)]
    lines += [""]
    lines += [f"           {event}" if i else f"events     {event}" for i, event in enumerate(job.events)]
    return Group(*map(_line, lines), make_workers_table(status.workers))


def facts(job: JobStatus, *, now: datetime, gpu_hourly_cost: float | None) -> list[tuple[str, str]]:
    """Name and value of each line."""
    outlook, lines = job.outlook, []
    if outlook is None:
        what = "over" if job.exit_code is not None else "nobody works on it, as far as is seen from here"
        lines.append(("limit", what))
    else:
        rate = f"{outlook.results_per_s:,.1f} results/s, {outlook.tokens_per_s:,.0f} tokens/s"
        backlog = f"{outlook.left:,} requests, {outlook.unfed:,} of them not fed"
        if outlook.redis_share is not None:
            backlog += f"; Redis {outlook.redis_share:.0%} full"
        lines += [("rate", rate), ("left", _describe_left(outlook.left_s, now)), ("backlog", backlog)]
        lines.append(("limit", f"{outlook.bottleneck}: {outlook.why}"))
        silent_s = (now - datetime.fromisoformat(outlook.at)).total_seconds()
        if silent_s > SILENT_S:
            lines.append(("silent", f"its collector has said nothing for {describe_duration(silent_s)}"))
        if outlook.waits_for:
            lines.append(("waits for", outlook.waits_for))
    if job.deadline is not None:
        lines.append(("deadline", describe_deadline(job)))
    failures = ", ".join(f"{code} {number:,}" for code, number in sorted(job.failures.items())) or "none"
    return [
        *lines,
        ("failures", failures),
        ("tokens", f"{job.prompt_tokens:,} in, {job.completion_tokens:,} out"),
        ("gpu time", describe_gpu_time(job, gpu_hourly_cost=gpu_hourly_cost)),
    ]


def make_workers_table(workers: list[Worker]) -> Table:
    """A row a worker, the busiest first."""
    table = Table(box=None, pad_edge=False, header_style="bold", width=80)
    for name, justify, width in (
        ("worker", "left", 24),
        ("model", "left", 15),
        ("gpu", "left", 5),
        ("in flight", "right", 9),
        ("tokens/s", "right", 8),
        ("memory", "right", 8),
    ):
        table.add_column(name, justify=justify, width=width, no_wrap=True, overflow="ellipsis")  # type: ignore[arg-type]
    chosen = sorted(workers, key=lambda worker: (-worker.tokens_per_s, worker.incarnation))
    for worker in chosen[:MOST_WORKERS]:
        table.add_row(
            _line(worker.incarnation),
            _line(", ".join(worker.models) if worker.state == "ready" else worker.state),
            _line(worker.gpu),
            f"{worker.in_flight}/{worker.target}",
            f"{worker.tokens_per_s:,.0f}",
            describe_size(worker.gpu_memory_bytes or worker.memory_bytes),
        )
    if len(chosen) > MOST_WORKERS:
        table.add_row(Text(f"and {len(chosen) - MOST_WORKERS} more"))
    if not chosen:
        table.add_row(Text("none is live"))
    return table


def describe_line(job: JobStatus, *, now: datetime) -> str:
    """The same in one line, for a log."""
    counts, outlook = job.counts, job.outlook
    total = "?" if counts["total"] is None else f"{counts['total']:,}"
    parts = [f"{job.job} {job.state}", f"{counts['done'] or 0:,} of {total} done", f"{counts['failed'] or 0:,} failed"]
    if outlook is not None:
        parts.append(f"{outlook.results_per_s:,.1f} results/s")
        parts.append(_describe_left(outlook.left_s, now))
        parts.append(f"limit {outlook.bottleneck}")
    if job.deadline is not None:
        parts.append(f"deadline {describe_deadline(job)}")
    return ", ".join(parts)


def _describe_left(left_s: float | None, now: datetime) -> str:
    if left_s is None:
        return "not known yet"
    ends = (now + timedelta(seconds=left_s)).astimezone()
    return f"{describe_duration(left_s)}, to {ends:%H:%M:%S}"


def _bar(job: JobStatus) -> str:
    done, total = job.counts["done"] or 0, job.counts["total"]
    known = total if total is not None else job.outlook and done + job.outlook.left
    share = done / known if known else float(total == 0)
    cells = int(BAR_CELLS * share)
    of = "" if total is None else f" of {total:,}"
    return f"[{'#' * cells}{'-' * (BAR_CELLS - cells)}] {share:4.0%}  {done:,}{of} done"


def _line(text: str) -> Text:
    """One line whatever is in it: what others wrote must not move the screen."""
    return Text("".join(c if c.isprintable() else " " for c in text), no_wrap=True, overflow="ellipsis")
