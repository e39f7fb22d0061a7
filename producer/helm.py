"""The helm: hears what is wished of a job, in Redis and in its directory, and lets the job take its course.

Journal first, then Redis. A crash between the two: the next look finds that Redis has another state than the journal,
and sets it. A wish that was journaled is never obeyed again.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, cast

import redis

from common import keys
from common.claims import Claims
from common.log import Event, get_logger
from producer.job_directory import JobDirectory
from producer.journal import Journal
from producer.ownership import say_course
from producer.steering import Course, Wish, find_failing, obey, pause
from producer.wish_file import read_wish

log = get_logger(__name__)


class Helm:
    """Steers one job, for whoever holds its lock."""

    def __init__(self, directory: JobDirectory, *, journal: Journal, client: redis.Redis | None) -> None:
        """`client` is None where there is no Redis to hear anything from."""
        self._directory = directory
        self._job = directory.spec.job
        self._journal = journal
        self._client = client

    @property
    def course(self) -> Course:
        """The job's state, and why."""
        return self._journal.course

    def hear(self, own: Wish | None = None) -> None:
        """Obey what is wished in the directory, then in Redis, then `own`, each once; Redis is told.

        Raises `FencedError`, `redis.RedisError`: what was heard by then is journaled.
        """
        if self._client is None:
            self.hear_without_redis(own)
            return
        fields = cast(Any, self._client.hmget(keys.info(self._job), "state", "want", "heard"))
        state, want, heard = (None if field is None else field.decode() for field in fields)
        self.obey((read_wish(self._directory.want_path), Wish.parse(want), own))
        if heard != " ".join(self.course.steering.heard):
            self.say(known=state)

    def hear_without_redis(self, own: Wish | None = None) -> None:
        """Obey what is wished in the directory, then `own`; Redis is told once it is back."""
        self.obey((read_wish(self._directory.want_path), own))

    def judge(self) -> None:
        """Pause the job if too many of its results are 5xx. Raises as `hear`."""
        if self.course.state != "open" or self._journal.counts.finished:
            return
        reason = find_failing(self.course.steering, self._journal.counts, above=self._directory.spec.pause_above)
        if reason is not None:
            self._take(pause(self.course, reason=reason))
            self.say()

    def obey(self, wishes: Iterable[Wish | None]) -> None:
        """Journal what `wishes` make of the job."""
        why = f"asked for by producer pause at {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
        known, standing = set(self.course.steering.heard), [wish for wish in wishes if wish is not None]
        self._take(obey(self.course, standing, counts=self._journal.counts, why=why))
        for wish in standing:
            if wish.nonce not in known:
                known.add(wish.nonce)
                log.info(Event.WISH_HEARD, job=self._job, verb=wish.verb, by=wish.by or "unknown")

    def say(self, *, known: str | None = None) -> None:
        """Tell Redis, which is `known` to have this state. Raises as `hear`."""
        if self._client is not None:
            epoch = self._journal.epoch
            say_course(Claims(self._client), self._job, epoch=epoch, course=self.course, known=known)

    def _take(self, course: Course) -> None:
        before = self.course
        if course == before:
            return
        with self._journal.writing():
            self._journal.steer(course)
        if course.state != before.state:
            log.info(
                Event.JOB_STEERED, job=self._job, before=before.state, state=course.state, why=course.steering.reason
            )
