"""What a collector sees around its job, once a look: live workers, live jobs, Redis' memory. It bounds what is fed."""

from producer.fleet import LiveJobs, read_fleet
from producer.job import NO_LIMIT_BYTES, Job
from producer.window import Limits, limits_for

FULL_SHARE = 0.8
"""Nothing is offered above this share of the server's maxmemory: publishing must still fit in."""


class Surroundings:
    """As of the last `refresh`."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._jobs = LiveJobs(job.id)
        self.limits = Limits(0, 0)
        self.live_jobs = 1
        self.memory_share: float | None = None
        """Of the server's maxmemory that is used; None: it has none."""

    def refresh(self, *, now_s: float) -> None:
        """Read everything anew. Raises `redis.RedisError`."""
        job, client = self._job, self._job.client
        job.meet(read_fleet(client))
        memory = client.info("memory")
        self.live_jobs = self._jobs.count(client, now_s=now_s)
        limit, used = memory.get("maxmemory", 0), memory["used_memory"]
        most = limit * FULL_SHARE
        self.memory_share = used / limit if limit else None
        job.full = 0 < most < used
        job.headroom_bytes = int(most - used) // self.live_jobs if most else NO_LIMIT_BYTES
        self.limits = limits_for(
            window_requests=job.settings.window_requests,
            window_bytes=job.settings.window_bytes,
            capacity=job.fleet.capacity(),
            live_jobs=self.live_jobs,
            max_concurrency=job.spec.max_concurrency,
        )

    def find_reason(self, *, all_fed: bool) -> str | None:
        """What the job waits for, None when it can go on."""
        job = self._job
        if not all_fed and not job.models.known:
            return "no live worker: which models this job has is what live workers serve (or give --model)"
        served = job.fleet.queues()
        models = {batch.row.model for batch in job.window.open.values()}
        unserved = sorted(model for model in models if job.route(model) not in served)
        if unserved:
            digest = job.journal.digests.get(unserved[0])
            build = f" in the build {digest} that this job began with" if digest else ""
            return f"no live worker serves {unserved[0]}{build}"
        if not all_fed and job.full:
            return f"Redis is above {FULL_SHARE:.0%} of its maxmemory"
        return None
