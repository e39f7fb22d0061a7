"""`status --watch`: the page again and again until the job is over; without a terminal a line a minute.

It only looks: Ctrl-C ends it and nothing else.
"""

import time
from contextlib import suppress
from datetime import UTC, datetime

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from common.errors import StoppedError
from common.settings import Settings
from producer.sight import OVER
from producer.status import Status, read_status
from producer.status_table import describe_workers, make_table
from producer.watch_page import describe_line, make_page

EVERY_S = 2.0
LINE_S = 60.0
MOST_COLUMNS = 100
"""A wider terminal shows no more."""


def watch(settings: Settings, *, job: str | None) -> None:
    """Show `job`, or all jobs, until it is over or Ctrl-C. Raises as `read_status` where there is nothing to show."""
    console = Console(highlight=False)
    with suppress(KeyboardInterrupt):
        if console.is_terminal:
            console.width = min(console.width, MOST_COLUMNS)
            _watch_on_screen(console, settings, job)
        else:
            _watch_in_lines(console, settings, job)


def _watch_on_screen(console: Console, settings: Settings, job: str | None) -> None:
    status = read_status(settings, job=job)
    with Live(_render(status, settings, job), console=console, auto_refresh=False, vertical_overflow="crop") as live:
        live.refresh()
        while not _is_over(status, job):
            time.sleep(EVERY_S)
            trouble = ""
            try:
                status = read_status(settings, job=job)
            except StoppedError as error:
                trouble = str(error)
            page = _render(status, settings, job)
            live.update(Group(page, Text(trouble)) if trouble else page, refresh=True)


def _watch_in_lines(console: Console, settings: Settings, job: str | None) -> None:
    status = read_status(settings, job=job)
    said_s = time.monotonic()
    _say(console, status)
    while not _is_over(status, job):
        time.sleep(EVERY_S)
        with suppress(StoppedError):
            status = read_status(settings, job=job)
        if time.monotonic() - said_s >= LINE_S or _is_over(status, job):
            said_s = time.monotonic()
            _say(console, status)


def _say(console: Console, status: Status) -> None:
    now = datetime.now(UTC)
    lines = [describe_line(found, now=now) for found in status.jobs] or [describe_workers(status)]
    console.print("\n".join(lines), markup=False, soft_wrap=True)


def _render(status: Status, settings: Settings, job: str | None) -> RenderableType:
    cost = settings.gpu_hourly_cost
    if job is not None:
        return make_page(status, status.jobs[0], now=datetime.now(UTC), gpu_hourly_cost=cost)
    table = make_table(status.jobs, gpu_hourly_cost=cost) if status.jobs else Text("no jobs")
    return Group(table, Text(describe_workers(status)))


def _is_over(status: Status, job: str | None) -> bool:
    return job is not None and status.jobs[0].state in OVER and status.jobs[0].exit_code is not None
