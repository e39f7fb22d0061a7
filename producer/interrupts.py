"""Ctrl-C and SIGTERM during a job: the first one drains, the second one ends at once, a third one waits for nobody."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Self

from common.errors import InterruptedJobError

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_PATIENCE = 2


class Interrupts:
    """While entered, counts interrupts for somebody who looks; raises where nobody does, and at the third one.

    The handler only counts: it may come inside any call, with any lock held.
    """

    def __init__(self) -> None:
        self.count = 0
        self._watchers = 0
        self._before: list[signal._HANDLER] = []

    def __enter__(self) -> Self:
        self._before = [signal.signal(signum, self._handle) for signum in _SIGNALS]
        return self

    def __exit__(self, *_: object) -> None:
        for signum, handler in zip(_SIGNALS, self._before, strict=True):
            signal.signal(signum, handler)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """While entered, somebody looks at `count`; else an interrupt raises in the main thread."""
        self._watchers += 1
        try:
            yield
        finally:
            self._watchers -= 1

    def _handle(self, signum: int, _frame: FrameType | None) -> None:
        self.count += 1
        if not self._watchers or self.count > _PATIENCE:
            raise InterruptedJobError(f"interrupted by {signal.Signals(signum).name}")
