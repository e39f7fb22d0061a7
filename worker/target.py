"""How many requests a worker wants in flight, while it runs: lowered when memory is short, raised again slowly.

Pure: told counters and times, it answers with the reason for a change. `admission` then keeps to the target. The first
life's target is what the engine runs at once and a quarter; after a death by want of memory the next life begins with
half of that.
"""

import math

OVERFILL = 1.25
"""Requests kept in flight for each that the engine really runs: the next one is there when a place falls free."""
LOOK_S = 5.0
THRASH_SHARE = 0.25
"""Preemptions between two looks, as a share of the target, that are too many: each costs a request all it had made.
A few are how a full KV cache looks, and cost less than a lower target would."""
LOWERED_TO = 0.8
SETTLE_S = 15.0
"""After a change: what is in flight above the new target must first end."""
RAISE_EVERY_S = 60.0
RAISED_BY = 0.05
LEAST_SHARE = 0.25
"""Preemptions alone lower the target no further: the engine itself keeps what does not fit waiting."""


def target_for(concurrency: int) -> int:
    """Requests to keep in flight for an engine that runs `concurrency` at once."""
    return max(1, math.ceil(OVERFILL * concurrency))


class TargetPolicy:
    """One life's target. Times are monotonic seconds."""

    def __init__(self, concurrency: int, *, share: float = 1.0) -> None:
        """`share`: of the full target, to begin with."""
        self.most = target_for(concurrency)
        self.target = max(1, math.floor(share * self.most))
        self._preemptions = 0
        self._changed_at = self._troubled_at = -math.inf

    def look(self, *, now: float, preemptions: int) -> str | None:
        """Why `target` has just been changed; None: it is as it was. `preemptions`: so far, of this life."""
        fresh, self._preemptions = preemptions - self._preemptions, preemptions
        if self._troubled_at == -math.inf:
            self._troubled_at = now
        if fresh > THRASH_SHARE * self.target:
            self._troubled_at = now
            least = min(self.target, math.ceil(LEAST_SHARE * self.most))
            if now - self._changed_at >= SETTLE_S and self.target > least:
                return self._set(max(least, int(LOWERED_TO * self.target)), now, f"{fresh} requests preempted")
        elif self.target < self.most and now - max(self._changed_at, self._troubled_at) >= RAISE_EVERY_S:
            more = max(1, round(RAISED_BY * self.most))
            return self._set(min(self.most, self.target + more), now, f"memory sufficed for {RAISE_EVERY_S:.0f} s")
        return None

    def _set(self, target: int, now: float, reason: str) -> str:
        self.target, self._changed_at = target, now
        return reason
