"""Whether the loops of a process that owns jobs get on, for the probes of its metrics port. Beside a line's way.

A loop that waits between two steps is well, and so is one whose step takes its time; one that stands in a step for a
minute is not.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self

STILL_S = 60.0
"""The longest step that is no standstill: six calls of a Redis that does not answer, or the ids of fifty million lines
recalled."""

_entered: "set[Pulse]" = set()


class Pulse:
    """One loop of this process; while entered, the probes ask it."""

    def __init__(self, *, still_s: float = STILL_S, now: Callable[[], float] = time.monotonic) -> None:
        self.is_ready = False
        """Whether it does what it is there for: it owns its job, and Redis answers."""
        self._still_s = still_s
        self._now = now
        self._began_s: float | None = None

    def __enter__(self) -> Self:
        _entered.add(self)
        return self

    def __exit__(self, *_: object) -> None:
        _entered.discard(self)

    @property
    def is_well(self) -> bool:
        """Whether no step of it takes too long."""
        began_s = self._began_s
        return began_s is None or self._now() - began_s < self._still_s

    @contextmanager
    def step(self) -> Iterator[None]:
        """While entered, a step is made."""
        self._began_s = self._now()
        try:
            yield
        finally:
            self._began_s = None


def all_well() -> bool:
    """Whether every loop of this process gets on."""
    return all(pulse.is_well for pulse in _entered.copy())


def all_ready() -> bool:
    """Whether this process has loops, and each does what it is there for."""
    entered = _entered.copy()
    return bool(entered) and all(pulse.is_ready for pulse in entered)
