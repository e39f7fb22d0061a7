"""How one job stands, looked at again and again for `wait`: in its journal on its own host, elsewhere in Redis."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import redis

from common.errors import StoppedError
from producer.counts import Counts
from producer.fleet import JOB_LIVE_S
from producer.job_directory import JobDirectory
from producer.journal_reader import read_checkpoint
from producer.notice import counts_of
from producer.status import JobStatus, read_remote, status_here, status_of_job

OVER = frozenset({"completed", "failed", "cancelled"})


@dataclass(frozen=True)
class Sight:
    """What one look saw."""

    status: JobStatus | None
    """None: the job cannot be seen just now."""
    counts: Counts
    lacks: str | None
    """What it lacks to go on, or to be seen; None: nothing that is known here."""

    @property
    def is_over(self) -> bool:
        """Whether it has come to its end, and with which exit code is known."""
        return self.status is not None and self.status.state in OVER and self.status.exit_code is not None


class Eye(Protocol):
    """Where a job is looked at."""

    def look(self, *, now_s: float) -> Sight:
        """Look once; `now_s` is monotonic. Raises `StoppedError` when the job can never come to its end."""


class JournalEye:
    """The job's own host, where the journal is the truth; needs no Redis."""

    def __init__(self, directory: JobDirectory) -> None:
        self._directory = directory

    def look(self, *, now_s: float) -> Sight:
        """Whoever holds the job's lock is its collector."""
        directory, job = self._directory, self._directory.spec.job
        try:
            checkpoint = read_checkpoint(directory.journal_path)
        except StoppedError as error:
            return Sight(None, Counts(), str(error))
        if checkpoint is None:
            status, counts = status_of_job(job, directory, None), Counts()
        else:
            status, counts = status_here(directory, checkpoint), checkpoint.counts
        sight = Sight(status, counts, None if status and status.collector else no_collector(status))
        if directory.superseded_path.exists() and not sight.is_over:
            newer = directory.superseded_path.read_text()
            raise StoppedError(
                f"job {job} never ends: job {newer} has its output now", where=str(directory.output_path)
            )
        return sight


class RedisEye:
    """Any other host that reaches Redis. A collector is alive while its `seen` moves, by this process's own time."""

    def __init__(self, client: redis.Redis, job: str) -> None:
        self._client = client
        self._job = job
        self._seen: str | None = None
        self._seen_at_s: float | None = None

    def look(self, *, now_s: float) -> Sight:
        """What the collector last wrote; it stays for an hour after the end."""
        try:
            info = read_remote(self._client, self._job).get(self._job)
        except redis.RedisError as error:
            return Sight(None, Counts(), f"Redis does not answer: {error}")
        if info is None:
            return Sight(None, Counts(), "Redis does not know the job any more: its collector will bring it back")
        if info.get("seen") != self._seen or self._seen_at_s is None:
            self._seen, self._seen_at_s = info.get("seen"), now_s
        status = status_of_job(self._job, None, info)
        still = now_s - self._seen_at_s >= JOB_LIVE_S
        return Sight(status, counts_of(info), no_collector(status) if still else None)


def no_collector(status: JobStatus | None) -> str:
    """Where to start one."""
    if status is None or status.directory is None:
        return "no collector is alive"
    jobs, job = Path(status.directory).parent, status.job
    return f"no collector is alive: on host {status.host}, producer resume {job} --jobs {jobs}"
