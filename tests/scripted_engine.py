"""An engine whose answers a test writes down, and one run of one micro-batch over it."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import orjson

from common.errors import EngineDeadError
from common.wire import WIRE_VERSION, MicroBatch, Request, Result
from worker.clock import LoopClock
from worker.engines.base import Answer, EngineFacts
from worker.result_writer import WorkerIdentity
from worker.runner import MicroBatchRun, Surroundings

FACTS = EngineFacts(name="sim test", served_models=("m",), digest="d", revision="rev", concurrency=4)
OK = Answer(200, b'{"choices":[{"finish_reason":"stop"}],"usage":{"prompt_tokens":2,"completion_tokens":3}}')
CUT = Answer(200, b'{"choices":[{"finish_reason":"abort"}]}')
BUSY = Answer(503, b'{"error":{"message":"busy"}}')

Script = Callable[[bytes, int], Awaitable[Answer]]
"""From a body and the number of the call with it (1-based) to an answer."""


class ScriptedEngine:
    """Answers as `script` says; keeps the virtual times of calls by body. Implements `Engine`."""

    def __init__(self, script: Script, *, dead_after: int | None = None) -> None:
        self._script = script
        self._dead_after = dead_after
        self.calls: dict[bytes, list[float]] = {}
        self.inside = 0
        self.cancelled = 0

    async def start(self) -> EngineFacts:
        return FACTS

    async def post(self, url: str, body: bytes) -> Answer:
        times = self.calls.setdefault(body, [])
        times.append(asyncio.get_running_loop().time())
        self.inside += 1
        try:
            return await self._script(body, len(times))
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.inside -= 1

    def unfinished(self) -> int:
        return self.inside

    def steps(self) -> int:
        return 0

    def preemptions(self) -> int:
        return 0

    async def check_health(self) -> None:
        if self._dead_after is not None and sum(map(len, self.calls.values())) >= self._dead_after:
            raise EngineDeadError("gone")

    async def stop(self) -> None:
        return None


def make_batch(n: int, *, timeout_s: float = 1800.0, max_retries: int = 3, first: int = 0) -> MicroBatch:
    requests = tuple(
        Request(first + i, 0, first + i + 1, f"id-{first + i}", "/v1/chat/completions", b'{"i":%d}' % (first + i), None)
        for i in range(n)
    )
    return MicroBatch(
        v=WIRE_VERSION,
        job="job",
        mb=0,
        model="m",
        kind="normal",
        request_timeout_s=timeout_s,
        max_retries=max_retries,
        fed_at=0.0,
        requests=requests,
    )


class Desk:
    """One run and what came of it."""

    def __init__(self, engine: ScriptedEngine, batch: MicroBatch, *, got: int = 0, seed: int = 0) -> None:
        self.engine = engine
        self.results: dict[int, Result] = {}
        self.places = 0
        self.most_places = 0
        self.cuts: list[int] = []
        """At each cut: how many requests were in the engine."""
        around = Surroundings(
            engine,
            WorkerIdentity("w", FACTS),
            LoopClock(),
            random.Random(seed),
            on_places=self._move,
            on_cut=lambda: self.cuts.append(self.places),
        )
        self.run = MicroBatchRun(batch, around, got=got, dlv=2, on_result=self.results.__setitem__)

    def _move(self, change: int) -> None:
        self.places += change
        self.most_places = max(self.most_places, self.places)

    def lines(self) -> dict[int, Any]:
        return {position: orjson.loads(result.line) for position, result in self.results.items()}


async def at_once(_body: bytes, _call: int) -> Answer:
    return OK


async def never(_body: bytes, _call: int) -> Answer:
    await asyncio.Event().wait()
    return OK
