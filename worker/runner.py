"""A micro-batch and an engine become results, between claim and publish: all requests at once, timeouts, retries.

Knows no Celery and no Redis. Everything runs in the engine's loop, one task a request, so that all that is in
flight shares the engine's continuous batching. A request that waits for its next attempt holds no place in it.
"""

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from common.errors import ErrorKind
from common.log import Event, get_logger
from common.result_line import to_json
from common.wire import MicroBatch, Request, Result
from worker.clock import Clock
from worker.engines.base import Engine
from worker.metrics import QUEUE_SECONDS, RETRIES
from worker.result_writer import ResultWriter, WorkerIdentity
from worker.retry import wait_before_retry
from worker.verdict import Verdict, failed, judge

GRACE_S = 10.0
"""An engine that has not let go of a request so long after its timeout is stuck with it."""
MOST_CUTS = 3
"""Answers cut short by a healthy engine before the request counts as failed."""

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What every run of a worker shares."""

    engine: Engine
    identity: WorkerIdentity
    clock: Clock
    rng: random.Random
    first_wait_s: float = 1.0
    """Before the first retry; doubles each time."""
    on_asked: Callable[[], object] = lambda: None
    """Told in the loop that requests are about to enter the engine."""
    on_places: Callable[[int], None] = lambda change: None
    """Told in the loop by how much the number of requests in the engine, or just about to be, has changed."""
    on_resting: Callable[[int], None] = lambda change: None
    """Told in the loop by how much the number of requests that wait for another attempt has changed."""
    on_cut: Callable[[], object] = lambda: None
    """Told in the loop that the engine has cut an answer short unasked."""


class MicroBatchRun:
    """One run of one micro-batch. All methods belong to the loop's thread; `stuck` may be read anywhere."""

    def __init__(
        self,
        batch: MicroBatch,
        around: Surroundings,
        *,
        got: int,
        dlv: int,
        on_result: Callable[[int, Result], None],
        on_retry: Callable[[Request, ErrorKind, int, float], object] = lambda request, kind, attempt, wait_s: None,
    ) -> None:
        """`got`: positions not to be run. `dlv`: deliveries, this one included. `on_retry`: before each wait."""
        self._batch = batch
        self._around = around
        self._dlv = dlv
        self._on_result = on_result
        self._on_retry = on_retry
        self._unwanted = got
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._deadlines: dict[int, float] = {}
        self._overdue: set[int] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._finished: list[tuple[int, Verdict, int, float]] = []
        """Position, last verdict, attempts and latency of what has no result yet."""
        self._news = asyncio.Event()
        """Something has ended."""
        self._unanswered = False
        """Something has ended without a verdict: it was abandoned, or the engine failed."""
        self.stuck = False
        """Every request of it is past its timeout, and the engine does not let go of them."""

    async def run(self, *, on_begun: Callable[[], object] = lambda: None) -> None:
        """Return once every request is answered or abandoned, each result given to `on_result` when it is there.

        `on_begun` is called once all its requests have told `on_places`, or when there are none. Raises
        `EngineDeadError`, and whatever else the engine raises; then, and when cancelled, everything unanswered has
        been stopped inside the engine.
        """
        positions = [i for i in range(len(self._batch.requests)) if not self._unwanted >> i & 1]
        if not positions:
            on_begun()
            return
        loop = asyncio.get_running_loop()
        queue_s = max(0.0, time.time() - self._batch.fed_at)
        writer = ResultWriter(
            self._batch, self._around.identity, dlv=self._dlv, queue_s=queue_s, started_at=datetime.now(UTC)
        )
        started = self._around.clock.monotonic()
        QUEUE_SECONDS.observe(queue_s)
        self._around.on_asked()
        for position in positions:
            self._tasks[position] = loop.create_task(self._answer(position, started))
        loop.call_soon(on_begun)  # after the first step of each task
        tasks = list(self._tasks.values())
        try:
            while self._tasks:
                await self._news.wait()
                self._news.clear()
                self._write(writer)
                if self._unanswered:
                    _raise_first(tasks)
        finally:
            self._write(writer)
            self.abandon((1 << len(self._batch.requests)) - 1)
            if unfinished := [task for task in tasks if not task.done()]:
                await asyncio.wait(unfinished)
            if self._timer is not None:
                self._timer.cancel()
            writer.close()

    def abandon(self, mask: int) -> None:
        """Stop the requests in `mask` inside the engine, also before they begin; they get no result here."""
        self._unwanted |= mask
        for position in [position for position in self._tasks if mask >> position & 1]:
            self._overdue.discard(position)
            self._tasks.pop(position).cancel()
            self._news.set()

    async def _answer(self, position: int, started: float) -> None:
        """One request from its first attempt to its last verdict; all of a micro-batch start together."""
        request = self._batch.requests[position]
        around = self._around
        answered = False
        around.on_places(+1)
        try:
            verdict, attempts = await self._attempt(position, request), 1
            if verdict.kind is not None or verdict.cut:
                verdict, attempts = await self._try_again(position, request, verdict)
            self._finished.append((position, verdict, attempts, around.clock.monotonic() - started))
            answered = True
        finally:
            around.on_places(-1)
            self._tasks.pop(position, None)
            self._unanswered = self._unanswered or not answered
            self._news.set()

    def _write(self, writer: ResultWriter) -> None:
        """The results of all that have ended since: many in a row cost half of what they do one by one."""
        if not self._finished:
            return
        finished, self._finished = self._finished, []
        finished_at = to_json(datetime.now(UTC))
        for position, verdict, attempts, latency_s in finished:
            request = self._batch.requests[position]
            result = writer.write(request, verdict, attempts=attempts, latency_s=latency_s, finished_at=finished_at)
            self._on_result(position, result)

    async def _try_again(self, position: int, request: Request, verdict: Verdict) -> tuple[Verdict, int]:
        """The last attempt's verdict, and how many there were; `verdict` is the first one's."""
        around = self._around
        attempt = 1
        timeouts = cuts = 0
        while True:
            if verdict.cut and cuts < MOST_CUTS:
                cuts += 1
                await self._outlive_cut()
                verdict = await self._attempt(position, request)
                continue
            if verdict.cut:
                verdict = failed(ErrorKind.ENGINE_ERROR, "the engine cut the answer short, again and again")
            if verdict.kind is None:
                return verdict, attempt
            timeouts += verdict.kind is ErrorKind.TIMEOUT
            wait_s = wait_before_retry(
                verdict.kind,
                attempt=attempt,
                timeouts=timeouts,
                max_retries=self._batch.max_retries,
                first_wait_s=around.first_wait_s,
                rng=around.rng,
            )
            if wait_s is None:
                return verdict, attempt
            self._tell_retry(request, verdict.kind, attempt=attempt, wait_s=wait_s)
            await self._wait(wait_s)
            attempt += 1
            verdict = await self._attempt(position, request)

    async def _attempt(self, position: int, request: Request) -> Verdict:
        """One call of the engine, at most as long as the micro-batch allows.

        Who cancelled comes first, what was answered second: an engine may answer a cancellation with a 400.
        """
        self._set_deadline(position)
        answer = None
        try:
            answer = await self._around.engine.post(request.url, request.body)
        except asyncio.CancelledError:
            if position not in self._overdue:
                raise
        finally:
            self._deadlines.pop(position, None)
        if position in self._overdue:
            self._overdue.discard(position)
            self._tasks[position].uncancel()
            return failed(ErrorKind.TIMEOUT, f"no answer within {self._batch.request_timeout_s:g} s")
        if answer is None or position not in self._tasks:
            raise asyncio.CancelledError
        return judge(answer)

    async def _wait(self, wait_s: float) -> None:
        """Wait without a place in the engine."""
        around = self._around
        around.on_places(-1)
        around.on_resting(+1)
        try:
            await around.clock.sleep(wait_s)
        finally:
            around.on_resting(-1)
            around.on_places(+1)

    async def _outlive_cut(self) -> None:
        """An engine that is being stopped cuts its answers short: see whether it lives before asking again.

        Raises `EngineDeadError`.
        """
        self._around.on_cut()
        await self._around.engine.check_health()
        await self._wait(self._around.first_wait_s)
        await self._around.engine.check_health()

    def _set_deadline(self, position: int) -> None:
        """One timer serves the whole micro-batch: a timer a request would cost as much as the call."""
        timeout_s = self._batch.request_timeout_s
        self._deadlines[position] = self._around.clock.monotonic() + timeout_s
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(timeout_s, self._sweep)

    def _sweep(self) -> None:
        """Cancel what is past its deadline, and look again when the next one is."""
        now = self._around.clock.monotonic()
        looks = []
        for position, deadline in self._deadlines.items():
            if deadline <= now and position not in self._overdue and position in self._tasks:
                self._overdue.add(position)
                self._tasks[position].cancel()
            looks.append(deadline if deadline > now else deadline + GRACE_S)
        self.stuck = bool(looks) and len(looks) == len(self._tasks) and max(looks) <= now
        pause_s = min((look - now for look in looks if look > now), default=GRACE_S)
        self._timer = asyncio.get_running_loop().call_later(pause_s, self._sweep) if looks else None

    def _tell_retry(self, request: Request, kind: ErrorKind, *, attempt: int, wait_s: float) -> None:
        RETRIES.labels(kind.value).inc()
        self._on_retry(request, kind, attempt, wait_s)
        log.info(
            Event.REQUEST_RETRIED,
            job=self._batch.job,
            seq=request.seq,
            line=request.line,
            error=kind.value,
            attempt=attempt,
            wait_s=round(wait_s, 2),
        )


def _raise_first(tasks: list[asyncio.Task[None]]) -> None:
    """Raise what the first of those failed with, if any did."""
    for task in tasks:
        if task.done() and not task.cancelled():
            task.result()
