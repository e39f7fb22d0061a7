"""What a running collector shows of its job in figures: gauges, and the counts for a progress bar. Off a line's way."""

from collections.abc import Callable

from producer.counts import Counts
from producer.feeder import Feeder
from producer.job import Job
from producer.metrics import DEADLINE_MARGIN, JobGauges
from producer.surroundings import Surroundings

EVERY_S = 0.1


class Figures:
    """One job's, for the life of its collector."""

    def __init__(
        self, job: Job, *, feeder: Feeder, around: Surroundings, on_progress: Callable[[Counts], None]
    ) -> None:
        self._job = job
        self._feeder = feeder
        self._around = around
        self._on_progress = on_progress
        self._gauges = JobGauges()
        self._shown_s = 0.0

    def tell(self, *, now_s: float) -> None:
        """Show them when it is time."""
        if now_s - self._shown_s >= EVERY_S:
            self._shown_s = now_s
            self.show()

    def show(self) -> None:
        """Show them as they are now."""
        counts = self._job.journal.counts
        self._gauges.set(
            backlog=counts.fed - counts.done + self._feeder.unfed(),
            window_requests=self._job.window.requests,
            window_limit=self._around.limits.requests,
            window_bytes=self._job.window.bytes,
            frontier_lag=max(0, counts.done - self._job.journal.frontier),
        )
        self._on_progress(counts.copy())

    def clear(self) -> None:
        """Take this job's share out of the gauges."""
        self._gauges.clear()
        DEADLINE_MARGIN.clear(self._job.id)
