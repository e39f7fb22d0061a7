"""What a job shows while it runs, on stderr: a bar on a terminal, elsewhere a line a minute (the first within 10 s)."""

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn
from rich.table import Column

from producer.counts import Counts

FIRST_LINE_S = 9.0
LINE_S = 60.0
REASON_S = 5.0
"""What is waited for is said after so long, whenever the last line was."""
TURN_S = 0.5
_RATE_WINDOW_S = 30.0


class Pace(NamedTuple):
    """How fast a job goes now."""

    requests_per_s: float
    tokens_per_s: float
    """Prompt and completion tokens of results together."""
    left_s: float | None
    """Seconds to the end at this pace; None while it cannot be known."""


class Pacer:
    """Pace from the counts of the last half minute, so that a stall shows and a restart does not look fast."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int, int]] = deque()

    def pace(self, counts: Counts, *, now_s: float) -> Pace:
        """Note `counts` at `now_s` (monotonic) and tell the pace."""
        tokens = counts.prompt_tokens + counts.completion_tokens
        self._seen.append((now_s, counts.done, tokens))
        while len(self._seen) > 2 and self._seen[1][0] <= now_s - _RATE_WINDOW_S:
            self._seen.popleft()
        then_s, done_then, tokens_then = self._seen[0]
        span_s = now_s - then_s
        if span_s <= 0:
            return Pace(0.0, 0.0, None)
        per_s = (counts.done - done_then) / span_s
        left_s = None if counts.total is None or per_s <= 0 else (counts.total - counts.done) / per_s
        return Pace(per_s, (tokens - tokens_then) / span_s, left_s)


class Show(Protocol):
    """Where a running job is shown; entered while it runs, called from any thread."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def say(self, text: str) -> None:
        """A line at once."""

    def wait(self, reason: str | None) -> None:
        """What is being waited for just now; None: nothing."""

    def update(self, counts: Counts) -> None:
        """The counts so far."""


def make_show(console: Console) -> Show:
    """A bar if `console` is a terminal, else lines."""
    return Bar(console) if console.is_terminal else Lines(console)


class Bar:
    """A progress bar that stays on its line."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._pacer = Pacer()
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", table_column=Column(no_wrap=True)),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[facts]}", table_column=Column(no_wrap=True)),
            console=console,
            expand=True,
        )
        self._task: TaskID | None = None
        self._facts = ""
        self._reason: str | None = None

    def __enter__(self) -> Self:
        self._bar.start()
        self._task = self._bar.add_task("starting", total=None, facts="")
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def say(self, text: str) -> None:
        """A line above the bar."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def wait(self, reason: str | None) -> None:
        """`reason` in place of the figures, as long as it holds."""
        self._reason = reason
        if self._task is not None:
            self._bar.update(self._task, description=reason or "", facts="" if reason else self._facts)

    def update(self, counts: Counts) -> None:
        """Move the bar."""
        if self._task is None:
            return
        self._facts = describe_short(counts, self._pacer.pace(counts, now_s=time.monotonic()))
        self._bar.update(self._task, total=counts.total, completed=counts.done)
        self.wait(self._reason)


class Lines:
    """A line within 10 s, then one a minute, also when no counts come; one more soon after a wait begins."""

    def __init__(self, console: Console, *, name: str = "") -> None:
        """`name` stands before each line, where several jobs share a console."""
        self._console = console
        self._prefix = f"{name}: " if name else ""
        self._pacer = Pacer()
        self._counts: Counts | None = None
        self._reason: str | None = None
        self._unsaid_s: float | None = None
        """Since when something has been waited for that no line has said yet."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._tick, name="progress", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def say(self, text: str) -> None:
        """A line at once."""
        self._console.print(self._prefix + text, markup=False, highlight=False, soft_wrap=True)

    def wait(self, reason: str | None) -> None:
        """`reason` in the next line, which comes soon if it was another before (what follows a colon may change)."""
        if reason is None:
            self._unsaid_s = None
        elif reason.partition(":")[0] != (self._reason or "").partition(":")[0]:
            self._unsaid_s = time.monotonic()
        self._reason = reason

    def update(self, counts: Counts) -> None:
        """Counts for the next line; the first ones start the pace."""
        if self._counts is None:
            self._pacer.pace(counts, now_s=time.monotonic())
        self._counts = counts

    def _tick(self) -> None:
        due_s = time.monotonic() + FIRST_LINE_S
        while not self._over.wait(min(TURN_S, max(0.0, due_s - time.monotonic()))):
            now_s, unsaid_s = time.monotonic(), self._unsaid_s
            if now_s < due_s and (unsaid_s is None or now_s < unsaid_s + REASON_S):
                continue
            due_s, self._unsaid_s = now_s + LINE_S, None
            parts = [self._reason] if self._reason else []
            if self._counts is not None:
                parts.append(describe(self._counts, self._pacer.pace(self._counts, now_s=time.monotonic())))
            self.say("; ".join(parts) or "starting")


def describe(counts: Counts, pace: Pace) -> str:
    """One line: `1,200 of 10,000 done, 3 failed, 53.1 requests/s, 9,120 tokens/s, 2 min 46 s left`."""
    total = f" of {counts.total:,}" if counts.total is not None else ""
    parts = [
        f"{counts.done:,}{total} done",
        f"{counts.failed:,} failed",
        f"{pace.requests_per_s:,.1f} requests/s",
        f"{pace.tokens_per_s:,.0f} tokens/s",
    ]
    if pace.left_s is not None:
        parts.append(f"{describe_duration(pace.left_s)} left")
    return ", ".join(parts)


def describe_short(counts: Counts, pace: Pace) -> str:
    """The same for a bar on 80 columns: `1,200/10,000, 3 failed, 53.1 req/s, 9,120 tok/s, 2 min 46 s left`."""
    total = f"/{counts.total:,}" if counts.total is not None else ""
    left = f", {describe_duration(pace.left_s)} left" if pace.left_s is not None else ""
    speed = f"{pace.requests_per_s:,.1f} req/s, {pace.tokens_per_s:,.0f} tok/s"
    return f"{counts.done:,}{total}, {counts.failed:,} failed, {speed}{left}"


def describe_duration(duration_s: float) -> str:
    """`9.3 s`, `2 min 46 s`, `3 h 5 min`."""
    if duration_s < 10:
        return f"{duration_s:.1f} s"
    whole = round(duration_s)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def describe_size(size_bytes: int) -> str:
    """`312 MiB`, `1.7 GiB`."""
    mib = size_bytes / 2**20
    return f"{mib:.0f} MiB" if mib < 1024 else f"{mib / 1024:.1f} GiB"


OnWait = Callable[[float, int], None]


def describe_start(waited_s: float, memory_bytes: int) -> str:
    """How long the local worker has been starting, and what memory it holds."""
    return f"the local worker starts: {describe_duration(waited_s)}, {describe_size(memory_bytes)} of memory"
