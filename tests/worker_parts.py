"""The parts of a worker without Celery: a desk that takes hints, over a simulated engine and a real Redis."""

import random
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import orjson
import redis

from common.claim_types import Offer
from common.claims import Claims
from common.keys import queue
from common.wire import WIRE_VERSION, MicroBatch, Request, Result, pack_micro_batch, unpack_results
from worker.admission import Admission
from worker.clock import LoopClock
from worker.ending import Ending
from worker.engine_loop import EngineLoop
from worker.engines.base import EngineFacts
from worker.engines.sim_engine import SimEngine
from worker.keeper import Keeper
from worker.outage import Outage
from worker.outcome import Outcome
from worker.result_writer import WorkerIdentity
from worker.runner import Surroundings
from worker.tasks import HintDesk

JOB = "job-1"
EPOCH = 1
STEP_S = 0.02


def make_batch(n: int, *, mb: int = 0, tokens: list[int] | None = None, kind: str = "normal") -> MicroBatch:
    """`n` chat requests; request i answers `tokens[i]` tokens (1 unless given)."""
    requests = []
    for i in range(n):
        body = {"messages": [{"role": "user", "content": f"row {mb} {i}"}], "max_tokens": tokens[i] if tokens else 1}
        seq = 1000 * mb + i
        requests.append(Request(seq, 0, seq + 1, f"id-{seq}", "/v1/chat/completions", orjson.dumps(body), None))
    return MicroBatch.model_validate(
        {
            "v": WIRE_VERSION,
            "job": JOB,
            "mb": mb,
            "model": "sim",
            "kind": kind,
            "request_timeout_s": 60.0,
            "max_retries": 3,
            "fed_at": 0.0,
            "requests": tuple(requests),
        }
    )


class Job:
    """The collector's side of one job, as far as a worker sees it."""

    def __init__(self, client: redis.Redis) -> None:
        self.client = client
        self.claims = Claims(client)
        self.take()

    def take(self, state: str = "open") -> None:
        """Own the job, also after a flush."""
        assert self.claims.own(JOB, epoch=EPOCH, state=state, mb_high=0, digests={}, manifest="{}")

    def offer(self, *batches: MicroBatch, got: int = 0) -> None:
        """Put micro-batches up."""
        offers = [Offer(b.mb, len(b.requests), got, pack_micro_batch(b), 1, b.kind) for b in batches]
        assert set(self.claims.offer(JOB, offers, epoch=EPOCH)) <= {"NEW"}

    def results(self) -> list[Result]:
        """Everything in the stream, in its order."""
        return [result for entry in self.claims.entries(JOB, count=1000) for result in unpack_results(entry.blob)]

    def seqs(self) -> list[int]:
        """Which results are in the stream, sorted."""
        return sorted(result.seq for result in self.results())

    def stage(self, mb: int = 0) -> str | None:
        """READY, HELD, FULL; None when there is no such micro-batch."""
        seen = self.claims.look(JOB).micro_batches.get(mb)
        return None if seen is None else seen.st


class WorkerParts:
    """One worker's desk, loop and keeper; hints are handed in by `take`, each in a thread of its own."""

    def __init__(self, client: redis.Redis, engine: SimEngine, facts: EngineFacts, loop: EngineLoop) -> None:
        self.loop = loop
        self.engine = engine
        self.outage = Outage()
        self.ending = Ending(loop, drain_timeout_s=1.5)
        self.admission = Admission(1000)
        claims = Claims(client)
        self.keeper = Keeper(
            claims, incarnation="w-1", digest=facts.digest, renew_s=0.2, outage=self.outage, is_waiting=self.ending.wait
        )
        around = Surroundings(
            engine,
            WorkerIdentity("w-1", facts),
            LoopClock(),
            random.Random(0),
            on_places=self.admission.move,
            on_resting=self.admission.rest,
        )
        self.desk = HintDesk(
            around=around,
            claims=claims,
            keeper=self.keeper,
            admission=self.admission,
            loop=loop,
            ending=self.ending,
            outage=self.outage,
        )
        self.ending.when_stopping(self.keeper.stop_runs)
        self.keeper.start(loop, every_s=0.1)
        self._pool = ThreadPoolExecutor(max_workers=16)
        self._numbers = iter(range(1_000_000))

    def take(self, mb: int = 0) -> "Future[Outcome | None]":
        """Hand in a hint for micro-batch `mb`; the future says what it came to, None if it is handed back."""
        name = f"message-{next(self._numbers)}"
        self.admission.received(name, 1)
        return self._pool.submit(self.desk.take, name, queue=queue("*"), version=WIRE_VERSION, job=JOB, mb=mb)

    def freeze_loop(self) -> threading.Event:
        """Let the loop stand still until the event is set."""
        thaw = threading.Event()
        self.loop.call(thaw.wait)
        return thaw

    def loop_moves(self, timeout_s: float) -> bool:
        """Whether the loop does something within `timeout_s` seconds."""
        moved = threading.Event()
        self.loop.call(moved.set)
        return moved.wait(timeout_s)

    def close(self) -> None:
        """End it; what still runs is stopped."""
        self.ending.leave()
        self._pool.shutdown(wait=True)


@contextmanager
def worker_parts(client: redis.Redis, *, places: int = 64) -> Iterator[WorkerParts]:
    """A worker over `client`, ended at the end."""
    loop = EngineLoop()
    loop.start()
    engine = SimEngine("token", seconds=STEP_S, places=places)
    parts = WorkerParts(client, engine, loop.submit(engine.start()).result(), loop)
    try:
        yield parts
    finally:
        parts.close()
        loop.submit(engine.stop()).result()
        loop.stop()
