"""The time that the runner and the simulated engine live by: real in a worker, virtual in tests.

Both run on asyncio, and asyncio asks its loop for the time. So one clock reads the running loop: on an
ordinary loop it is `time.monotonic`; inside `run_virtual` time jumps to the next timer whenever nothing else
can run, and so `asyncio.sleep`, `asyncio.timeout` and `call_later` all take no real time.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

_T = TypeVar("_T")


class Clock(Protocol):
    """A clock that only moves forward; seconds since an arbitrary moment."""

    def monotonic(self) -> float:
        """Seconds; only differences mean anything."""
        ...

    async def sleep(self, duration_s: float) -> None:
        """Return after `duration_s` seconds of this clock."""
        ...


class LoopClock:
    """The running loop's own time: real on an ordinary loop, virtual inside `run_virtual`."""

    def monotonic(self) -> float:
        """The loop's time in seconds. Raises `RuntimeError` outside a running loop."""
        return asyncio.get_running_loop().time()

    async def sleep(self, duration_s: float) -> None:
        """`asyncio.sleep`."""
        await asyncio.sleep(duration_s)


def run_virtual(main: Coroutine[Any, Any, _T]) -> _T:
    """Run `main` to its end in virtual time, which starts at 0, and return what it returns. No threads.

    Raises `RuntimeError` when nothing can run any more and no timer is set: in real time that would hang.
    """
    with asyncio.Runner(loop_factory=_VirtualLoop) as runner:
        return runner.run(main)


class _VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time stands still while anything can run, and jumps when nothing can."""

    def __init__(self) -> None:
        self._now_s = 0.0
        super().__init__(_JumpSelector(self))

    def time(self) -> float:
        return self._now_s

    def jump(self, duration_s: float) -> None:
        """Move time forward."""
        self._now_s += duration_s


class _JumpSelector(selectors.SelectSelector):
    """Where the loop would wait for its next timer, the time jumps there instead."""

    def __init__(self, loop: _VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events: list[tuple[selectors.SelectorKey, int]] = super().select(0)
        if events or timeout == 0:
            return events
        if timeout is None:
            raise RuntimeError("virtual time has nothing left to wait for")
        self._loop.jump(timeout)
        return events
