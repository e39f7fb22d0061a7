"""A micro-batch of long chats run over a live engine, as a worker would: for tests of timeouts and aborts."""

import json
import random
import time

from common.wire import WIRE_VERSION, MicroBatch, Request, Result
from tests.acceptance.engine_thread import CHAT, MODEL, EngineThread, chat
from worker.clock import LoopClock
from worker.result_writer import WorkerIdentity
from worker.runner import MicroBatchRun, Surroundings


class EngineRun:
    """The run, on its way; `results` by position."""

    def __init__(self, engine: EngineThread, max_tokens: list[int], *, timeout_s: float) -> None:
        requests = tuple(
            Request(i, 0, i + 1, f"id-{i}", CHAT, json.dumps(chat(max_tokens=tokens, ignore_eos=True)).encode(), None)
            for i, tokens in enumerate(max_tokens)
        )
        batch = MicroBatch(
            v=WIRE_VERSION,
            job="job",
            mb=0,
            model=MODEL,
            kind="normal",
            request_timeout_s=timeout_s,
            max_retries=0,
            fed_at=time.time(),
            requests=requests,
        )
        around = Surroundings(engine.engine, WorkerIdentity("w", engine.facts), LoopClock(), random.Random(0))
        self.results: dict[int, Result] = {}
        self.began = time.monotonic()
        self._engine = engine
        self._run = MicroBatchRun(batch, around, got=0, dlv=1, on_result=self.results.__setitem__)
        self._future = engine.submit(self._run.run())

    def abandon(self, mask: int) -> None:
        """Ask the runner to stop these."""

        async def ask() -> None:
            self._run.abandon(mask)

        self._engine.run(ask())

    def join(self, timeout_s: float = 60) -> dict[int, Result]:
        """The results, once the run has ended."""
        self._future.result(timeout_s)
        return self.results
