"""How far micro-batches grow where engines are fast: a message's own cost is then shared by more requests. Pure.

Stands before the planner on a line's way. What a worker holds stays a short stretch of its work either way: a
micro-batch that grew is finished as soon as a small one is by a slow engine.
"""

CALM_PER_S = 32.0
"""Micro-batches of the wanted size that a worker may finish a second before they grow: a message costs it some 2 ms."""
STRETCH_S = 0.25
"""The pace is taken over so long."""


class BatchGrowth:
    """One job's, for the life of its feeder. `most`: times the wanted size, at most; 1: never."""

    def __init__(self, size: int, *, most: float) -> None:
        self._size = size
        self._most = most
        self._since: tuple[float, int] | None = None
        self.factor = 1.0
        """Times the wanted size, now."""

    def look(self, *, done: int, workers: int, now_s: float) -> None:
        """Note that the job has `done` results at `now_s` (monotonic), by `workers`."""
        if self._since is None or done < self._since[1]:
            self._since = now_s, done
        since_s, then = self._since
        if now_s - since_s < STRETCH_S:
            return
        per_worker_s = (done - then) / (now_s - since_s) / max(1, workers)
        self.factor = min(self._most, max(1.0, per_worker_s / CALM_PER_S / self._size))
        self._since = now_s, done
