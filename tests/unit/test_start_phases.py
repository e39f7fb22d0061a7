"""The phases of a worker's start: what counts to which, what the supervisor says, when the first token is there."""

import asyncio
import json
import time

from tests.scripted_engine import FACTS, OK, ScriptedEngine
from worker.engines.base import Answer
from worker.start_phases import FirstToken, StartPhases, describe


def test_phases_follow_each_other_and_fill_the_whole_start() -> None:
    phases = StartPhases(spawned_at=time.monotonic() - 10)
    phases.end("process")
    phases.engine_up(FACTS)
    phases.end("consumer")
    phases.first_token(0.0)
    assert list(phases.seconds) == ["process", "checks", "consumer", "wait", "token"]
    assert 10 <= phases.seconds["process"] < 11
    assert abs(sum(phases.seconds.values()) - phases.total_s) < 1e-6


def test_what_the_supervisor_says() -> None:
    start = {"process": 1.04, "checks": 0.1, "import": 6.0, "engine": 5.16, "application": 0.5, "consumer": 0.1}
    said = "ready after 12.9 s: process 1.0, checks 0.1, import 6.0, engine 5.2, application 0.5, consumer 0.1"
    assert describe(json.dumps(start)) == [said]
    assert describe("{}") == []
    with_token = start | {"wait": 3.0, "token": 0.31}
    first = "first token 0.31 s after its first request, 16.2 s after its start"
    assert describe(json.dumps(with_token)) == [said, first]


class Stepping(ScriptedEngine):
    """Makes a step when it is told to."""

    made = 3

    def steps(self) -> int:
        return self.made


def test_the_first_token_is_told_once() -> None:
    async def answer(_body: bytes, _call: int) -> Answer:
        return OK

    async def main() -> list[float]:
        engine = Stepping(answer)
        told: list[float] = []
        first = FirstToken(engine, tell=told.append)
        first.asked()
        first.asked()
        await asyncio.sleep(0.05)
        assert not told, "an idle engine has made no token"
        engine.made += 1
        await asyncio.sleep(0.05)
        engine.made += 1
        first.asked()
        await asyncio.sleep(0.05)
        return told

    (took_s,) = asyncio.run(main())
    assert 0.05 <= took_s < 1
