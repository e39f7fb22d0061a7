"""The simulated engine: answers the same calls as vLLM with made-up text, in the time that a profile says.

For tests, tours and benchmarks of everything around the engine. Prompt patterns make it fail in every way an
engine can. Calls can be counted across processes and restarts in a file.
"""

import asyncio
import hashlib
import os
import signal
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import orjson

from common.errors import EngineDeadError
from worker.clock import Clock, LoopClock
from worker.engines.base import Answer, EngineFacts
from worker.engines.model_digest import model_digest
from worker.engines.sim_answers import CONTEXT_TOKENS, SimCall, error_answer, read_call
from worker.engines.sim_profiles import SimAction, SimPattern, SimProfile
from worker.engines.sim_tokens import TokenCount

CALLS_VARIABLE = "BAKEHOUSE_SIM_CALLS"
"""A file to which every call adds a line `{"pid", "sha", "text"}`: hash of the body, text of the last message."""
ANY_MODEL = "*"
_STOPPED = "the simulated engine is stopped"


class _Work:
    """One request inside the engine."""

    __slots__ = ("action", "done", "steps_left")

    def __init__(self, steps: int, action: SimAction | None) -> None:
        self.steps_left = steps
        self.action = action
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class SimEngine:
    """An engine without a model. Implements `Engine`."""

    def __init__(
        self,
        profile: SimProfile | str = SimProfile.TOKEN,
        *,
        seconds: float | None = None,
        places: int | None = None,
        patterns: Sequence[SimPattern] = (),
        served_model_name: str | None = None,
        revision: str | None = None,
        seed: int = 0,
        clock: Clock | None = None,
        calls_path: Path | None = None,
    ) -> None:
        """`seconds`, `places`: see `SimProfile`; None: the profile's own. `served_model_name` None: any name.
        `revision`: which build it says that it is.

        `calls_path`: where to count calls; None: the environment's `BAKEHOUSE_SIM_CALLS`, if set.
        """
        self._profile = SimProfile(profile)
        self._seconds = self._profile.default_seconds if seconds is None else seconds
        self._places = self._profile.default_places if places is None else places
        self._patterns = tuple(patterns)
        self._served = served_model_name
        self._revision = revision
        self._seed = seed
        self._clock = clock or LoopClock()
        calls = calls_path or os.environ.get(CALLS_VARIABLE)
        self._calls_path = Path(calls) if calls else None
        self._failed_once: set[str] = set()
        self._waiting: deque[_Work] = deque()
        self._running: dict[_Work, None] = {}
        self._wake = asyncio.Event()
        self._steps = 0
        self._made = TokenCount.from_environment()
        self._hung = False
        self._loop_task: asyncio.Task[None] | None = None

    async def start(self) -> EngineFacts:
        """Be ready, at once."""
        self._loop_task = asyncio.create_task(self._run())
        return EngineFacts(
            name=f"sim {self._profile}",
            served_models=(self._served or ANY_MODEL,),
            digest=model_digest(
                self._revision or "sim", dtype=self._profile, quantisation=None, chat_template=str(self._seed)
            ),
            revision=self._revision,
            concurrency=self._places,
            max_model_len_tokens=CONTEXT_TOKENS,
            start_phases_s={"import": 0.0, "engine": 0.0, "application": 0.0},
        )

    async def post(self, url: str, body: bytes) -> Answer:
        """Answer one call. Cancelling takes the request out at once. Raises `EngineDeadError` once stopped."""
        if self._loop_task is None:
            raise EngineDeadError(_STOPPED)
        call = read_call(url, body, served=self._served)
        if self._calls_path is not None:
            _count(self._calls_path, body, call)
        if isinstance(call, Answer):
            return call
        action = self._action(call.texts[0])
        if action is SimAction.FAIL:
            return error_answer(500, "InternalServerError", "the pattern says fail")
        if action is SimAction.FAIL_ONCE and call.texts[0] not in self._failed_once:
            self._failed_once.add(call.texts[0])
            return error_answer(503, "ServiceUnavailableError", "the pattern says fail once")
        tokens = self._profile.length(call.texts[0], call.limit, self._seed)
        if self._profile is not SimProfile.ZERO or action is not None or self._hung:
            await self._work(_Work(self._profile.steps(tokens), action))
        else:
            self._steps += 1
        return call.answer(tokens, inf_logprobs=action is SimAction.INF_LOGPROBS)

    def unfinished(self) -> int:
        """Requests running or waiting now."""
        return len(self._running) + len(self._waiting)

    def steps(self) -> int:
        """Steps made so far; still while the engine hangs."""
        return self._steps

    def preemptions(self) -> int:
        """None: its requests need no memory."""
        return 0

    async def check_health(self) -> None:
        """Raises `EngineDeadError` before the start and after the stop. A hung engine looks healthy."""
        if self._loop_task is None:
            raise EngineDeadError(_STOPPED)

    async def stop(self) -> None:
        """End; what is in flight gets `EngineDeadError`."""
        task, self._loop_task = self._loop_task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})
        for work in [*self._running, *self._waiting]:
            if not work.done.done():
                work.done.set_exception(EngineDeadError(_STOPPED))

    async def _work(self, work: _Work) -> None:
        """Wait until `work` has had all its steps."""
        self._waiting.append(work)
        self._wake.set()
        try:
            await work.done
        finally:
            if work in self._running:
                del self._running[work]
            elif work in self._waiting:
                self._waiting.remove(work)

    async def _run(self) -> None:
        """The engine's own loop: let requests in, make a step, let the finished go."""
        ended_s = self._clock.monotonic()
        while True:
            self._admit()
            if not self._running:
                self._wake.clear()
                await self._wake.wait()
                ended_s = self._clock.monotonic()
                continue
            ended_s = await self._step(since_s=ended_s)
            self._made.add(len(self._running))
            for work in list(self._running):
                await self._act(work.action)
                work.steps_left -= 1
                if work.steps_left <= 0:
                    del self._running[work]
                    if not work.done.done():
                        work.done.set_result(None)
            self._steps += 1

    async def _step(self, *, since_s: float) -> float:
        """Let one step's time go by since the one before ended; returns when this one ended, by the plan.

        A timer that is late, as all are, shortens the next step; what a held-up process misses is lost to it.
        """
        now_s = self._clock.monotonic()
        ended_s = max(now_s, since_s + self._profile.step_s(self._seconds, len(self._running)))
        await self._clock.sleep(ended_s - now_s)
        return ended_s

    def _admit(self) -> None:
        if self._profile is SimProfile.BAKERY and self._running:
            return
        while self._waiting and len(self._running) < self._places:
            self._running[self._waiting.popleft()] = None

    async def _act(self, action: SimAction | None) -> None:
        """What a pattern does to the engine, at the end of its request's first step."""
        if action is SimAction.ABORT:
            os.abort()
        if action is SimAction.KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        if action is SimAction.HANG:
            self._hung = True
            await asyncio.Event().wait()

    def _action(self, text: str) -> SimAction | None:
        for pattern in self._patterns:
            if pattern.text in text:
                return pattern.action
        return None


def _count(path: Path, body: bytes, call: SimCall | Answer) -> None:
    """Add a line for one call; one write, so that lines of several processes never mix."""
    text = call.texts[0][:200] if isinstance(call, SimCall) else None
    line = orjson.dumps({"pid": os.getpid(), "sha": hashlib.sha256(body).hexdigest()[:16], "text": text})
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, line + b"\n")
    finally:
        os.close(descriptor)
