"""Who is there: live workers with what they serve, and live jobs, read from Redis by each collector.

A worker is live while its heartbeat stands in Redis, a job while its collector's `seen` moves.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import orjson
import redis

from common import keys
from common.errors import ErrorKind

ANY = "*"
"""What a worker serves that answers to every name (the simulated engine without a name of its own)."""
UNNAMED_MODEL = "simulated"
"""The model of a line that names none, where only workers that answer to every name live."""
JOB_LIVE_S = 30.0
_SCAN_COUNT = 1000


class Worker(NamedTuple):
    """One live worker."""

    incarnation: str
    models: tuple[str, ...]
    digest: str
    state: str
    target: int
    """Requests it runs at once."""


class Fleet(NamedTuple):
    """All live workers on one Redis."""

    workers: tuple[Worker, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        """Every model they serve; `*` stands for any."""
        return frozenset(model for worker in self.workers for model in worker.models)

    def capacity(self, model: str | None = None) -> int:
        """Requests that those which take work (for `model`, where it is given) run at once."""
        name = None if model is None else self.served_as(model)
        return sum(
            worker.target
            for worker in self.workers
            if worker.state != "draining" and (name is None or name in worker.models)
        )

    def queues(self) -> frozenset[str]:
        """Every queue that one of them takes from."""
        return frozenset(
            keys.queue(model, digest)
            for worker in self.workers
            for model in worker.models
            for digest in (None, worker.digest)
        )

    def only_digest(self, name: str) -> str | None:
        """The build that all workers of `name` have; None where there are several, or nobody."""
        digests = {worker.digest for worker in self.workers if name in worker.models}
        return digests.pop() if len(digests) == 1 else None

    def served_as(self, model: str) -> str:
        """The name under which `model` is asked for: its own, or `*` where only workers that serve any name live."""
        names = self.names
        return ANY if model not in names and ANY in names else model


def read_fleet(client: redis.Redis) -> Fleet:
    """The live workers. A heartbeat that cannot be read is not counted."""
    names = list(client.scan_iter(match=keys.WORKER_PREFIX + "*", count=_SCAN_COUNT))
    with client.pipeline(transaction=False) as pipe:
        for name in names:
            pipe.hgetall(name)
        found = cast(list[Mapping[bytes, bytes]], pipe.execute() if names else [])
    workers = []
    for name, fields in zip(names, found, strict=True):
        worker = _worker_of(name.decode().removeprefix(keys.WORKER_PREFIX), fields)
        if worker is not None:
            workers.append(worker)
    return Fleet(tuple(workers))


def route(model: str, fleet: Fleet, digests: Mapping[str, str]) -> str:
    """The queue for a micro-batch of `model`: of the pinned build, else of the only one there is.

    So jobs that the same workers serve wait in one queue, and share them.
    """
    served = model if model in digests else fleet.served_as(model)
    return keys.queue(served, digests.get(served) or fleet.only_digest(served))


class ModelChoice:
    """Which model answers a line: those named for the job, else those that live workers serve when the line is fed."""

    def __init__(self, named: str | None) -> None:
        self._named = named
        self._names: frozenset[str] = frozenset((named,)) if named else frozenset()
        self.waived = False
        """Whether a line that cannot be judged is taken as it is, since none will run any more."""

    def update(self, fleet: Fleet, digests: Mapping[str, str]) -> None:
        """Learn who is there now; a model that this job has already used stays known."""
        if self._named is None:
            self._names = fleet.names | (digests.keys() - {ANY})

    @property
    def known(self) -> bool:
        """Whether a line can be judged at all; if not, wait for a worker."""
        return bool(self._names)

    def choose(self, named: str | None) -> str | tuple[ErrorKind, str]:
        """The model for a line that names `named`, or why none answers it. For `reader.read_lines`."""
        names = self._names - {ANY}
        if self.waived and not self.known:
            return named or ""
        if named is not None:
            if named in names or ANY in self._names:
                return named
            served = ", ".join(sorted(names))
            return ErrorKind.MODEL_NOT_FOUND, f"the model {named!r} is not served; this job's models: {served}"
        if len(names) == 1:
            return next(iter(names))
        if not names:
            return UNNAMED_MODEL
        return (
            ErrorKind.INVALID_REQUEST,
            f"the line must name a model, since several answer: {', '.join(sorted(names))}",
        )


class LiveJobs:
    """Counts live jobs by the reader's own monotonic time: those whose `seen` moved within 30 s, and that want work."""

    def __init__(self, own: str) -> None:
        self._own = own
        self._moved: dict[str, tuple[bytes | None, float]] = {}

    def count(self, client: redis.Redis, *, now_s: float) -> int:
        """Live jobs now, this one included. One seen for the first time counts as live until it stands still."""
        jobs = [name.decode() for name in cast(Any, client.hkeys(keys.JOBS))]
        others = [job for job in jobs if job != self._own]
        with client.pipeline(transaction=False) as pipe:
            for job in others:
                pipe.hmget(keys.info(job), "seen", "state")
            found = pipe.execute() if others else []
        before, self._moved = self._moved, {}
        for job, (value, state) in zip(others, found, strict=True):
            last, at_s = before.get(job, (None, now_s))
            if value is not None and state != b"paused":
                self._moved[job] = (value, at_s if value == last else now_s)
        return 1 + sum(now_s - at_s <= JOB_LIVE_S for _, at_s in self._moved.values())


def _worker_of(incarnation: str, fields: Mapping[bytes, bytes]) -> Worker | None:
    try:
        models = orjson.loads(fields[b"models"])
        return Worker(
            incarnation,
            tuple(str(model) for model in models),
            fields[b"digest"].decode(),
            fields[b"state"].decode(),
            int(fields.get(b"target", b"0") or 0),
        )
    except (KeyError, ValueError, TypeError):
        return None
