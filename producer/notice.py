"""What a collector says of its job in Redis: that it lives, how far it is, how it ended. For `status` on any host.

Copies of what the journal has, written under the collector's epoch alone, so that a stale one changes nothing.
"""

import time
from collections.abc import Callable, Mapping
from typing import cast

import orjson
import redis

from common import keys
from common.claims import Claims
from common.log import Event, get_logger
from common.notes import note
from producer.counts import Counts
from producer.job import Job
from producer.outcome import Outcome
from producer.ownership import manifest_of

REFRESH_S = 3600.0
WITHDRAW_S = 2.0
"""A finished job is tried to be taken out of Redis for so long."""
AGAIN_S = 0.1

log = get_logger(__name__)


class Notice:
    """Keeps one job's `info` up to date."""

    def __init__(self, job: Job, *, now_s: float, expects: Callable[[], Mapping[str, object]] = dict) -> None:
        """`expects`: what the collector expects of the job, as fields of `info`."""
        self._job = job
        self._expects = expects
        self._seen = 0
        self._refreshed_s = now_s

    def renew(self, *, now_s: float) -> None:
        """Say that the collector lives and how far it is; hourly, start the keys' lifetime anew."""
        job = self._job
        note(job.client, keys.JOBS, {job.id: manifest_of(job)})
        self._seen += 1
        seen = f"{job.journal.epoch}.{self._seen}"
        said = {**fields_of(job.journal.counts), **self._expects()}
        job.claims.amend(job.id, epoch=job.journal.epoch, fields={"seen": seen, **said})
        if now_s - self._refreshed_s >= REFRESH_S:
            job.claims.refresh(job.id, list(job.window.open))
            self._refreshed_s = now_s


def fields_of(counts: Counts) -> dict[str, object]:
    """The counts as fields of `info`; an unknown total is empty, failures by kind are JSON."""
    return {
        "total": "" if counts.total is None else counts.total,
        "fed": counts.fed,
        "done": counts.done,
        "succeeded": counts.succeeded,
        "failed": counts.failed,
        "blank": counts.blank,
        "retried": counts.retried,
        "redelivered": counts.redelivered,
        "duplicates": counts.duplicates,
        "prompt_tokens": counts.prompt_tokens,
        "completion_tokens": counts.completion_tokens,
        "late": counts.late,
        "gpu_s": counts.gpu_s,
        "failures": orjson.dumps(counts.failures).decode(),
    }


def counts_of(fields: Mapping[str, str]) -> Counts:
    """The counts that `fields_of` wrote; what `fields` lack is 0, an unknown total None."""
    known = {name: fields[name] for name in fields_of(Counts()) if fields.get(name)}
    return Counts(**{name: orjson.loads(value) for name, value in known.items()})


def withdraw(client: redis.Redis, job: str, *, epoch: int, outcome: Outcome) -> None:
    """Take a finished job out of Redis, but for its `info`, which stays an hour. Where Redis is away its keys stay on.

    Redis may have an older epoch than the journal: a cancelled job can end without it.
    """
    ended = {**fields_of(outcome.counts), "exit": outcome.exit_code, "status": outcome.status}
    until_s = time.monotonic() + WITHDRAW_S
    while True:
        try:
            known = cast(bytes | None, client.hget(keys.info(job), "epoch"))
            Claims(client).finish(job, epoch=epoch if known is None else min(epoch, int(known)), fields=ended)
            client.hdel(keys.info(job), "want")  # a rerun finds no wish from before
            client.hdel(keys.JOBS, job)
        except redis.RedisError as error:
            if time.monotonic() < until_s:
                time.sleep(AGAIN_S)
                continue
            log.warning(Event.REDIS_LOST, job=job, error=str(error))  # its keys have a lifetime
        return
