"""Patience: no silent wait. What a collector waits for is said within 10 s and every minute, and given up in the end.

Pure: time is passed in, and what is to be said is handed to a callback.
"""

import math
from collections.abc import Callable

from common.errors import StoppedError

FIRST_SAID_S = 5.0
SAID_EVERY_S = 60.0


class GaveUpError(StoppedError):
    """Nothing has moved for too long."""


class Patience:
    """One collector's waiting, by its monotonic time."""

    def __init__(
        self, *, give_up_after_s: float, say: Callable[[str, float], None], now_s: float, blind_s: float = math.inf
    ) -> None:
        """`give_up_after_s`: 0 = never. `say` gets what is waited for and for how many seconds so far.

        `blind_s`: who was not asked for longer stood still itself, as in a laptop's sleep, and did not wait meanwhile.
        """
        self._give_up_after_s = give_up_after_s
        self._blind_s = blind_s
        self._asked_s = now_s
        self._say = say
        self._progress_s = now_s
        self._since_s = now_s
        self._said_s: float | None = None
        self.reason: str | None = None
        """What is waited for now."""

    def wait_for(self, reason: str | None, *, now_s: float) -> None:
        """Note what is waited for at this moment, None for nothing; says it when it is time.

        Raises `GaveUpError`.
        """
        asleep_s = max(0.0, now_s - self._asked_s - self._blind_s)
        self._asked_s = now_s
        self._progress_s += asleep_s
        if (reason is None) != (self.reason is None):
            self._since_s, self._said_s = now_s, None
        self.reason = reason
        waited_s = now_s - self._since_s
        due_s = self._since_s + FIRST_SAID_S if self._said_s is None else self._said_s + SAID_EVERY_S
        if reason is not None and now_s >= due_s:
            self._said_s = now_s
            self._say(reason, waited_s)
        if self._give_up_after_s and now_s - self._progress_s >= self._give_up_after_s:
            raise GaveUpError(
                f"nothing has moved for {now_s - self._progress_s:.0f} s: {reason or 'no result came'}",
                do="the job can be continued; give_up_after_s sets how long to wait",
            )

    def progress(self, *, now_s: float) -> None:
        """Note that something moved: a line was fed, a result came, or a hold was renewed."""
        self._progress_s = now_s
