"""Who is there: live workers with what they serve, and live jobs, read from Redis by each collector.

A worker is live while its heartbeat stands in Redis, a job while its collector's `seen` moves.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import orjson
import redis

from common import keys
from common.errors import ErrorKind
from common.wire import WIRE_VERSION, job_ids

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
    in_flight: int = 0
    """Requests in its engine."""
    results: int = 0
    tokens: int = 0
    """Prompt and completion tokens of its results in this life."""
    tokens_per_s: float = 0.0
    busy_s: float = 0.0
    """Seconds of this life in which anything was in flight."""
    memory_bytes: int = 0
    """What its processes hold of the host's memory."""
    gpu_memory_bytes: int = 0
    """What is in use on its GPUs; 0 where it has none, or that cannot be asked."""
    start_s: float = 0.0
    """What its start took."""
    host: str = ""
    gpu: str = ""
    """The GPUs it has, `0+1`; something else where it has none."""
    engine: str = ""

    @property
    def gpus(self) -> int:
        """How many GPUs it has; one without counts as one."""
        return self.gpu.count("+") + 1


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
    """The live workers that read our hints: those of our wire version. An unreadable heartbeat is not counted."""
    found = read_heartbeats(client, keys.WORKER_PREFIX)
    workers = (_worker_of(incarnation, fields) for incarnation, fields in found.items())
    return Fleet(tuple(worker for worker in workers if worker is not None))


def read_heartbeats(client: redis.Redis, prefix: str) -> dict[str, Mapping[bytes, bytes]]:
    """The fields of every heartbeat under `prefix`, by what follows it."""
    names = list(client.scan_iter(match=prefix + "*", count=_SCAN_COUNT, _type="hash"))
    with client.pipeline(transaction=False) as pipe:
        for name in names:
            pipe.hgetall(name)
        found = cast(list[Mapping[bytes, bytes]], pipe.execute() if names else [])
    return {
        name.decode(errors="replace").removeprefix(prefix): fields for name, fields in zip(names, found, strict=True)
    }


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


class JobsSeen(NamedTuple):
    """How many unfinished jobs there are in Redis, by their collector."""

    alive: int
    gone: int
    paused: int


class LiveJobs:
    """Counts live jobs by the reader's own monotonic time: those whose `seen` moved within 30 s, and that want work."""

    def __init__(self, own: str | None = None) -> None:
        """`own`: the reader's own job, which it need not look at."""
        self._own = own
        self._moved: dict[str, tuple[bytes | None, float]] = {}

    def count(self, client: redis.Redis, *, now_s: float) -> int:
        """Live jobs now, this one included. One seen for the first time counts as live until it stands still."""
        return 1 + self.look(client, now_s=now_s).alive

    def look(self, client: redis.Redis, *, now_s: float) -> JobsSeen:
        """All jobs but the reader's own."""
        jobs = job_ids(cast(Any, client.hkeys(keys.JOBS)))
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
        alive = sum(now_s - at_s <= JOB_LIVE_S for _, at_s in self._moved.values())
        paused = sum(state == b"paused" for _, state in found)
        return JobsSeen(alive, len(self._moved) - alive, paused)


def _worker_of(incarnation: str, fields: Mapping[bytes, bytes]) -> Worker | None:
    if fields.get(b"wire", b"%d" % WIRE_VERSION) != b"%d" % WIRE_VERSION:
        return None
    try:
        models = orjson.loads(fields[b"models"])
        return Worker(
            incarnation,
            tuple(str(model) for model in models),
            fields[b"digest"].decode(),
            fields[b"state"].decode(),
            int(fields.get(b"target", b"0") or 0),
            in_flight=int(fields.get(b"in_flight", 0)),
            results=int(fields.get(b"results", 0)),
            tokens=int(fields.get(b"tokens", 0)),
            tokens_per_s=float(fields.get(b"tokens_per_s", 0)),
            busy_s=float(fields.get(b"busy_s", 0)),
            memory_bytes=int(fields.get(b"memory_bytes", 0)),
            gpu_memory_bytes=int(fields.get(b"gpu_memory_bytes", 0)),
            start_s=_start_s(fields.get(b"start", b"{}")),
            host=fields.get(b"host", b"").decode(),
            gpu=fields.get(b"gpu", b"").decode(),
            engine=fields.get(b"engine", b"").decode(),
        )
    except (KeyError, ValueError, TypeError, AttributeError):
        return None


def _start_s(phases: bytes) -> float:
    """What a worker's start took, without what it waited for its first request, and that one's first token."""
    return sum(float(took_s) for phase, took_s in orjson.loads(phases).items() if phase not in ("wait", "token"))
