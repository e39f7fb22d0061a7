"""Endurance: a collector's steps, again and again while Redis is gone, full or another's. Off a line's way.

What a step has journaled by then stays so, and each step is safe to repeat.
"""

import time
from collections.abc import Callable
from typing import Protocol, Self, TypeVar

import redis

from common.broker import redis_url, refuses_writes
from common.log import Event, get_logger, redact
from common.settings import Settings
from producer.disk import MAKE_ROOM, DiskError, is_disk_full
from producer.job import FencedError
from producer.job_directory import JobDirectory
from producer.pulse import Pulse

TURN_S = 0.1
LONGEST_PAUSE_S = 2.0
"""Between two tries to reach a lost Redis."""
FULL_DISK_S = 10.0
"""So long Redis may refuse writes for want of room on its disk."""

log = get_logger(__name__)

T = TypeVar("T")


class Sufferer(Protocol):
    """Whose steps they are."""

    def check_stop(self) -> None:
        """Raises when it is to end."""

    def wait_for(self, reason: str | None, now_s: float) -> None:
        """Note what is waited for; raises `StoppedError` when that takes too long."""

    def look_again(self, *, full: bool) -> None:
        """A step failed: Redis is not what it was, or (`full`) has no room for hints just now."""


class Endurance:
    """What one collector bears of its Redis; while entered, the probes of the metrics port see how its steps go."""

    def __init__(
        self, directory: JobDirectory, *, settings: Settings, sufferer: Sufferer, pulse: Pulse | None = None
    ) -> None:
        self._directory = directory
        self._settings = settings
        self._sufferer = sufferer
        self.failures = 0
        """Steps that failed since the last one that did not."""
        self._refused_s: float | None = None
        """Since when Redis has refused every write."""
        self._pulse = pulse or Pulse()

    def __enter__(self) -> Self:
        self._pulse.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._pulse.__exit__()

    def bear(self, step: Callable[[], T]) -> T:
        """What `step` returns, once it does.

        Raises what `step` raises beyond Redis' faults, `DiskError` when Redis has no room on its disk, and what the
        sufferer raises.
        """
        while True:
            self._sufferer.check_stop()
            try:
                with self._pulse.step():
                    result = step()
            except FencedError:
                self._sufferer.look_again(full=False)  # it finds another epoch, and takes the job again or stops
            except redis.OutOfMemoryError:
                self._bear_full_memory()
            except redis.RedisError as error:
                self._lose(error)
            else:
                if self.failures:
                    log.info(Event.REDIS_FOUND, job=self._directory.spec.job, tries=self.failures)
                    self.failures = 0
                    self._refused_s = None
                self._pulse.is_ready = True
                return result

    def _lose(self, error: redis.RedisError) -> None:
        """Redis did not answer, or not as it should: say so and pause, longer each time."""
        if not self.failures:
            log.warning(Event.REDIS_LOST, job=self._directory.spec.job, error=str(error))
        self.failures += 1
        self._pulse.is_ready = False
        self._sufferer.look_again(full=False)
        if refuses_writes(error):
            self._bear_full_disk(error)
        else:
            self._refused_s = None
            self._sufferer.wait_for(f"Redis does not answer: {error}", time.monotonic())
        until_s = time.monotonic() + min(LONGEST_PAUSE_S, TURN_S * 2 ** min(self.failures, 10))
        while time.monotonic() < until_s:
            self._sufferer.check_stop()
            time.sleep(TURN_S)

    def _bear_full_disk(self, error: redis.RedisError) -> None:
        """Redis cannot write its append-only file: wait a little, since a rewrite of it may free room. Then give up."""
        now_s = time.monotonic()
        self._refused_s = now_s if self._refused_s is None else self._refused_s
        self._sufferer.wait_for(f"Redis cannot write to its disk: {error}", now_s)
        if now_s - self._refused_s >= FULL_DISK_S:
            embedded = self._directory.spec.redis == "embedded"
            path = self._directory.server_path if embedded else None
            raise DiskError(
                "the append-only file of Redis",
                why=str(error),
                path=path,
                where="" if path else redact(redis_url(self._settings)),
                is_full=path is None or is_disk_full(path),
                do=MAKE_ROOM,
            ) from error

    def _bear_full_memory(self) -> None:
        """Redis takes no hint just now: feed nothing and look again later; what comes in meanwhile makes room."""
        self._sufferer.look_again(full=True)
        self._sufferer.wait_for("Redis is full: it takes no hints", time.monotonic())
        time.sleep(TURN_S)
