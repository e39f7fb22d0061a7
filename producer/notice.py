"""What a collector says of its job in Redis: that it lives, how far it is, how it ended. For `status` on any host.

Copies of what the journal has, written under the collector's epoch alone, so that a stale one changes nothing.
"""

from collections.abc import Mapping

import orjson
import redis

from common import keys
from common.claims import Claims
from common.notes import note
from producer.counts import Counts
from producer.job import Job
from producer.outcome import Outcome
from producer.ownership import manifest_of

REFRESH_S = 3600.0


class Notice:
    """Keeps one job's `info` up to date."""

    def __init__(self, job: Job, *, now_s: float) -> None:
        self._job = job
        self._seen = 0
        self._refreshed_s = now_s

    def renew(self, *, now_s: float) -> None:
        """Say that the collector lives and how far it is; hourly, start the keys' lifetime anew."""
        job = self._job
        note(job.client, keys.JOBS, {job.id: manifest_of(job)})
        self._seen += 1
        seen = f"{job.journal.epoch}.{self._seen}"
        job.claims.amend(job.id, epoch=job.journal.epoch, fields={"seen": seen, **fields_of(job.journal.counts)})
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
        "failures": orjson.dumps(counts.failures).decode(),
    }


def counts_of(fields: Mapping[str, str]) -> Counts:
    """The counts that `fields_of` wrote; what `fields` lack is 0, an unknown total None."""
    known = {name: fields[name] for name in fields_of(Counts()) if fields.get(name)}
    return Counts(**{name: orjson.loads(value) for name, value in known.items()})


def withdraw(client: redis.Redis, job: str, *, epoch: int, outcome: Outcome) -> None:
    """Take a finished job out of Redis, but for its `info`, which stays an hour. Raises `redis.RedisError`."""
    ended = {"exit": outcome.exit_code, "status": outcome.status}
    Claims(client).finish(job, epoch=epoch, fields={**fields_of(outcome.counts), **ended})
    client.hdel(keys.info(job), "want")  # a rerun finds no wish from before
    client.hdel(keys.JOBS, job)
