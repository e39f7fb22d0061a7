"""Certificates of death: why a worker ended, as its supervisor saw it, written to `bakehouse:died`.

With one the janitor need not wait until a hold expires, and knows whether the work held may be to blame.
"""

import signal
from dataclasses import dataclass
from enum import StrEnum
from typing import cast

import redis

from common import keys
from common.claims import Claims
from common.notes import note
from common.wire import job_ids
from worker.options import (
    EXIT_ABORTED,
    EXIT_CANNOT_START,
    EXIT_DIED,
    EXIT_DRAINED,
    EXIT_ENGINE_KILLED,
    EXIT_OUT_OF_MEMORY,
    EXIT_START_FAILED,
    EXIT_STOPPED,
)

_FAULTS = frozenset({signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT})
_DIED = frozenset({EXIT_DIED, EXIT_OUT_OF_MEMORY})
_LEFT = frozenset({EXIT_DRAINED, EXIT_ABORTED, EXIT_STOPPED, EXIT_START_FAILED, EXIT_CANNOT_START})


class Cause(StrEnum):
    """What a certificate says."""

    SELF = "self"
    """It fell by its own doing, or its work's: a fault, an engine error, a hung step, out of memory."""
    OUTSIDE = "outside"
    """Somebody or something else ended it."""
    LEFT = "left"
    """It left by order, for want of Redis, or before it took any work: blames nobody."""


@dataclass(frozen=True, slots=True)
class ExitStatus:
    """How a process ended: exactly one of its exit code and the signal that ended it."""

    code: int | None = None
    signum: int | None = None

    def __str__(self) -> str:
        return f"exit code {self.code}" if self.signum is None else signal.Signals(self.signum).name


def cause_of(status: ExitStatus, *, out_of_memory: bool, told_to_leave: bool) -> Cause:
    """The cause that `status` proves.

    `out_of_memory`: the control group's count of such kills has just risen. `told_to_leave`: the worker had been asked
    to drain, so that also its SIGKILL at the end of the drain blames nobody.
    """
    if status.signum in _FAULTS or status.code in _DIED:
        return Cause.SELF
    if told_to_leave or status.code in _LEFT:
        return Cause.LEFT
    return Cause.SELF if lacked_memory(status, out_of_memory=out_of_memory) else Cause.OUTSIDE


def lacked_memory(status: ExitStatus, *, out_of_memory: bool) -> bool:
    """Whether `status` is an end by want of memory: the engine's own word, or a kill while the count rose."""
    killed = status.signum == signal.SIGKILL or status.code == EXIT_ENGINE_KILLED
    return status.code == EXIT_OUT_OF_MEMORY or (killed and out_of_memory)


def certify(client: redis.Redis, incarnation: str, cause: Cause) -> None:
    """Write one certificate, and end the heartbeat that outlives its worker; repeating it is safe.

    Raises `redis.RedisError`.
    """
    note(client, keys.DIED, {incarnation: cause.value}, lifetime_s=keys.DIED_LIFETIME_S)
    client.unlink(keys.worker(incarnation))


def holds_any(client: redis.Redis, incarnation: str) -> bool:
    """Whether any micro-batch of a live job is held by `incarnation`. Raises `redis.RedisError`."""
    for job in job_ids(cast(list[bytes], client.hkeys(keys.JOBS))):
        look = Claims(client).look(job)
        if any(seen.st == "HELD" and seen.worker == incarnation for seen in look.micro_batches.values()):
            return True
    return False
