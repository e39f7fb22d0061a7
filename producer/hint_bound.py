"""How many requests of one model may wait as hints in a queue that all jobs share. Pure: counts and moments in.

Workers take hints in order, so equal bounds make equal shares, whatever each job has left. A bound is what the fleet
runs at once: enough that no worker waits for the collector's next turn, and whoever comes later waits no longer than
one request takes. Where requests are so short that a fleet takes all that between two turns, it grows; see
docs/decisions/0021-fair-shares.md.
"""

DRY_TURNS = 2
"""A fleet that begins, or whose requests all end at once, takes everything in one turn and waits for nothing."""
STEP = 1.25
SHRINK_S = 5.0
FIRST_NUDGE_S = 10.0
LAST_NUDGE_S = 160.0
"""A hint may have got lost, and then its requests count as waiting: after so long without a claim the oldest is hinted
again, then after twice as long. Where hints only wait long, another one does no harm."""


class HintBound:
    """The bound of one model of one job, from turn to turn."""

    def __init__(self, *, now_s: float) -> None:
        self._grown = 0.0
        self.has_grown = False
        """Whether the fleet takes all that it runs at once between two turns."""
        self._changed_s = now_s
        self._dry = 0
        self._withheld = False
        self._unclaimed = 0
        self._moved_s = now_s
        self._nudge_s = FIRST_NUDGE_S

    def room(self, unclaimed: int, *, least: int, most: int, now_s: float) -> int:
        """Requests that may be hinted now, while `unclaimed` are; `least` is what the fleet runs at once."""
        self._dry = self._dry + 1 if self._withheld and not unclaimed else 0
        if self._dry >= DRY_TURNS:
            self._grown = max(self._grown, least) * STEP
            self._changed_s = now_s
        elif not self._dry and now_s - self._changed_s >= SHRINK_S:
            self._grown /= STEP
            self._changed_s = now_s
        self._grown = min(self._grown, most)
        self.has_grown = self._grown > least
        return max(0, min(most, max(least, int(self._grown))) - unclaimed)

    def note(self, unclaimed: int, *, hinted: bool, left: bool, now_s: float) -> None:
        """What the turn came to: requests unclaimed by now, whether some were hinted, and whether others are left."""
        self._withheld = hinted and left
        if hinted or unclaimed != self._unclaimed:
            self._moved_s = now_s
            self._nudge_s = FIRST_NUDGE_S
        self._unclaimed = unclaimed

    def is_stuck(self, *, now_s: float) -> bool:
        """Whether nothing has moved for long; asked again, it waits twice as long."""
        if now_s - self._moved_s < self._nudge_s:
            return False
        self._moved_s = now_s
        self._nudge_s = min(LAST_NUDGE_S, 2 * self._nudge_s)
        return True
