"""The lookout: at each look of a collector, when its job will end, what holds it up, how it stands by its deadline.

Beside a line's way. It hurries the job's hints when the deadline is near, and says a coming miss while there is time.
"""

import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, cast

from common import keys
from common.log import Event, get_logger
from producer.bottleneck import Bottleneck, Seen, find_bottleneck
from producer.deadline import NOWHERE, Crew, Deadline, Standing, judge
from producer.deadline_file import read_deadline
from producer.eta import Forecast, Forecaster
from producer.feeder import Feeder
from producer.fleet import Fleet, Worker
from producer.job import Job
from producer.outlook import FIELD, Outlook
from producer.outlook_gauges import OutlookGauges
from producer.recent_events import RecentEvents
from producer.surroundings import Surroundings

AGAIN_S = 300.0
"""A miss that is still to come is said again after so long, or when it takes more workers than was said."""

log = get_logger(__name__)


class Lookout:
    """One job's, for the life of its collector."""

    def __init__(self, job: Job, *, feeder: Feeder, around: Surroundings) -> None:
        self._job = job
        self._feeder = feeder
        self._around = around
        self._forecaster = Forecaster()
        self._warner = Warner(job.id)
        self._events = RecentEvents(job.id)
        self._gauges = OutlookGauges(job)
        self._outlook: Outlook | None = None
        logging.getLogger("producer").addHandler(self._events)

    def close(self) -> None:
        """Note no more events, and show nothing more."""
        self._gauges.clear()
        logging.getLogger("producer").removeHandler(self._events)

    def look(self, reason: str | None, *, now_s: float) -> None:
        """See how the job is getting on; `reason` is what it waits for. Raises `redis.RedisError`."""
        job = self._job
        workers = self._serving()
        self.count_usage(now_s=now_s)
        forecast = self._forecast(workers, now_s=now_s)
        deadline = None if job.journal.round else read_deadline(job.directory.deadline_path)
        job.journal.late_after_s = None if deadline is None else deadline.at.timestamp()
        standing = self._warner.stand(deadline, forecast, workers, now_s=now_s)
        job.hints.hurry(standing.is_urgent)
        bottleneck = find_bottleneck(self._see(workers))
        self._outlook = self._describe(forecast, deadline, standing, bottleneck, reason)
        self._gauges.show(self._outlook, now_s=now_s)

    def count_usage(self, *, now_s: float) -> None:
        """Put the GPU seconds so far into the counts; they are journaled with the next commit."""
        job = self._job
        job.usage.look(job.fleet.workers, now_s=now_s)
        job.journal.counts.gpu_s = round(job.usage.total_s(now_s=now_s), 3)

    def fields(self) -> dict[str, object]:
        """What is to be said in Redis."""
        return {} if self._outlook is None else {FIELD: self._outlook.to_json()}

    def _serving(self) -> list[Worker]:
        """Live workers that this job's hints reach."""
        job = self._job
        queues = {job.route(model) for model in {batch.row.model for batch in job.window.open.values()}}
        workers = job.fleet.workers
        return [worker for worker in workers if not queues or queues & Fleet((worker,)).queues()]

    def _forecast(self, workers: Sequence[Worker], *, now_s: float) -> Forecast:
        counts = self._job.journal.counts
        is_endless = counts.total is None and self._feeder.grows
        return self._forecaster.look(
            done=counts.done,
            tokens=counts.prompt_tokens + counts.completion_tokens,
            left=None if is_endless else self._left(),
            workers=sum(worker.state == "ready" for worker in workers),
            in_flight=sum(worker.in_flight for worker in workers) / self._around.live_jobs,
            now_s=now_s,
        )

    def _left(self) -> int:
        counts = self._job.journal.counts
        return counts.fed - counts.done + self._feeder.unfed()

    def _see(self, workers: Sequence[Worker]) -> Seen:
        job, limits = self._job, self._around.limits
        room, cap = job.window.room(limits), job.spec.max_concurrency
        return Seen(
            state=job.journal.course.state,
            live=len(workers),
            ready=sum(worker.state == "ready" for worker in workers),
            in_flight=sum(worker.in_flight for worker in workers),
            target=sum(worker.target for worker in workers if worker.state == "ready"),
            waiting=job.window.requests,
            unfed=self._feeder.unfed(),
            has_room=room.requests > 0 and room.bytes > 0,
            is_capped=cap is not None and limits.requests == cap,
            awaits_lines=self._feeder.is_idle,
            stream=int(cast(Any, job.client.xlen(keys.results(job.id)))),
            redis_full=job.full,
            other_jobs=self._around.live_jobs - 1,
        )

    def _describe(
        self,
        forecast: Forecast,
        deadline: Deadline | None,
        standing: Standing,
        bottleneck: Bottleneck,
        reason: str | None,
    ) -> Outlook:
        return Outlook(
            at=datetime.now(UTC).isoformat(timespec="seconds"),
            results_per_s=round(forecast.results_per_s, 3),
            tokens_per_s=round(forecast.tokens_per_s, 1),
            left=self._left(),
            unfed=self._feeder.unfed(),
            left_s=_rounded(forecast.left_s),
            bottleneck=bottleneck.name,
            why=bottleneck.text,
            waits_for=reason,
            deadline=None if deadline is None else deadline.at.isoformat(),
            margin_s=_rounded(standing.margin_s),
            workers_needed=standing.workers_needed,
            is_urgent=standing.is_urgent,
            is_at_risk=standing.is_at_risk,
            redis_share=self._around.memory_share,
            events=tuple(self._events.lines()),
        )


class Warner:
    """Judges a job by its deadline, and says a miss when it is seen coming, when it is averted, when it is there."""

    def __init__(self, job: str) -> None:
        self._job = job
        self._standing = NOWHERE
        self._untold_s: float | None = None
        """Since when no end can be told."""
        self._said_s: float | None = None
        """When a coming miss was said last, None: no miss is coming."""
        self._said_needed: int | None = None
        self._missed: Deadline | None = None

    def stand(
        self, deadline: Deadline | None, forecast: Forecast, workers: Sequence[Worker], *, now_s: float
    ) -> Standing:
        """How the job stands, said where it is news."""
        if deadline is None:
            self._standing = NOWHERE
            return self._standing
        ready = [worker for worker in workers if worker.state == "ready"]
        left_s = deadline.left_s(datetime.now(UTC))
        start_s = max((worker.start_s for worker in ready), default=0.0)
        crew = Crew(len(ready), sum(worker.in_flight for worker in ready), start_s)
        if forecast.left_s is not None:
            self._untold_s = None
        elif self._untold_s is None:
            self._untold_s = now_s
        untold_s = 0.0 if self._untold_s is None else now_s - self._untold_s
        self._standing = judge(forecast, crew, left_s=left_s, before=self._standing, untold_s=untold_s)
        if left_s <= 0:
            self._say_missed(deadline, forecast)
        else:
            self._say(deadline, len(ready), now_s)
        return self._standing

    def _say(self, deadline: Deadline, workers: int, now_s: float) -> None:
        standing, needed = self._standing, self._standing.workers_needed
        if standing.is_at_risk:
            needs_more = needed is not None and needed > (self._said_needed or 0)
            if self._said_s is None or needs_more or now_s - self._said_s >= AGAIN_S:
                self._said_s, self._said_needed = now_s, needed
                log.warning(
                    Event.DEADLINE_AT_RISK,
                    job=self._job,
                    deadline=deadline.at.isoformat(),
                    margin_s=_rounded(standing.margin_s),
                    workers=workers,
                    workers_needed=needed,
                )
        elif standing.margin_s is not None and not standing.is_urgent and self._said_s is not None:
            self._said_s = self._said_needed = None
            log.info(Event.DEADLINE_REGAINED, job=self._job, margin_s=_rounded(standing.margin_s))

    def _say_missed(self, deadline: Deadline, forecast: Forecast) -> None:
        if self._missed != deadline:
            self._missed = deadline
            log.warning(
                Event.DEADLINE_MISSED, job=self._job, deadline=deadline.at.isoformat(), results_missing=forecast.left
            )


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)
