"""What a collector expects of one job, as gauges; renewed at each look. Off a line's way."""

from producer import metrics
from producer.job import Job
from producer.job_gauges import JobShares
from producer.outlook import Outlook
from producer.usage import cost_of

GAUGES = (metrics.DEADLINE_MARGIN, metrics.LEFT, metrics.OLDEST_HINT, metrics.GPU_SECONDS, metrics.COST)


class OutlookGauges:
    """One job's, for the life of its collector."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._shares = JobShares()

    def show(self, outlook: Outlook, *, now_s: float) -> None:
        """Show `outlook`, what the job has cost, and how long its hints wait."""
        job, gpu_s, per_hour = self._job.id, self._job.journal.counts.gpu_s, self._job.settings.gpu_hourly_cost
        self._shares.set({metrics.BOTTLENECK.labels(outlook.bottleneck): 1})
        metrics.OLDEST_HINT.set(job, self._job.window.oldest_hint_s(now_s=now_s))
        metrics.GPU_SECONDS.set(job, gpu_s)
        metrics.COST.set(job, None if per_hour is None else cost_of(gpu_s, per_hour=per_hour))
        metrics.DEADLINE_MARGIN.set(job, outlook.margin_s)
        metrics.LEFT.set(job, outlook.left_s)

    def clear(self) -> None:
        """The job is over, or another process's."""
        self._shares.clear()
        for gauge in GAUGES:
            gauge.clear(self._job.id)
