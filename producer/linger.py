"""Linger: how long a collector lets results gather before its next turn. Pure; between the receiver's looks.

A turn costs some 2 ms of a processor that engines may share. Where results trickle in, most turns find nothing: while
workers have other work to take, nothing waits for the next turn, so it may come later.
"""

FEW = 32
"""A turn that moves fewer lines was hardly worth it."""
GROWTH = 1.05
MOST = 3.0
"""At most so many times the setting: a result is certain within a tenth of a second by default."""
SHORTEST_S, LONGEST_S = 0.002, 0.1


class Linger:
    """One collector's pauses."""

    def __init__(self, least_s: float) -> None:
        """`least_s` seconds from turn to turn where much moves, or something waits for what comes in."""
        self._least_s = least_s
        self.seconds = least_s

    def pause_s(self, moved: int, *, took_s: float, has_time: bool) -> float:
        """Seconds to sleep after a turn that moved so many lines in `took_s`; `has_time`: no worker waits for it."""
        trickles = has_time and moved < FEW
        self.seconds = min(MOST * self._least_s, GROWTH * self.seconds) if trickles else self._least_s
        return min(LONGEST_S, max(SHORTEST_S, self.seconds - took_s))
