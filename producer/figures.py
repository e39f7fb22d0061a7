"""What a running collector shows of its job in figures: gauges, and the counts for a progress bar. Off a line's way."""

from collections.abc import Callable

from producer.counts import Counts
from producer.feeder import Feeder
from producer.job import Job
from producer.job_gauges import JobShares
from producer.metrics import (
    BACKLOG,
    DONE,
    FRONTIER_LAG,
    JOB_TOKENS,
    WINDOW_BYTES,
    WINDOW_LIMIT,
    WINDOW_REQUESTS,
)
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
        self._shares = JobShares()
        self._shown_s = 0.0

    def tell(self, *, now_s: float) -> None:
        """Show them when it is time."""
        if now_s - self._shown_s >= EVERY_S:
            self._shown_s = now_s
            self.show()

    def show(self) -> None:
        """Show them as they are now."""
        counts = self._job.journal.counts
        self._shares.set(
            {
                BACKLOG: counts.fed - counts.done + self._feeder.unfed(),
                DONE: counts.done,
                WINDOW_REQUESTS: self._job.window.requests,
                WINDOW_LIMIT: self._around.limits.requests,
                WINDOW_BYTES: self._job.window.bytes,
                FRONTIER_LAG: max(0, counts.done - self._job.journal.frontier),
                JOB_TOKENS.labels("prompt"): counts.prompt_tokens,
                JOB_TOKENS.labels("completion"): counts.completion_tokens,
            }
        )
        self._on_progress(counts.copy())

    def clear(self) -> None:
        """Take this job's share out of the gauges."""
        self._shares.clear()
