"""The runner in virtual time over a scripted engine: results, waits, timeouts, and everything that stops it."""

import asyncio
import random
from itertools import pairwise

import pytest

from common.errors import EngineDeadError
from tests.scripted_engine import BUSY, CUT, OK, Desk, ScriptedEngine, at_once, make_batch, never
from worker.clock import run_virtual
from worker.engines.base import Answer
from worker.result_writer import request_sha256
from worker.runner import GRACE_S


def finish(desk: Desk) -> None:
    """Run `desk` to its end in virtual time."""
    run_virtual(desk.run.run())
    assert desk.places == 0
    assert desk.engine.inside == 0


def test_every_position_gets_its_whole_line() -> None:
    desk = Desk(ScriptedEngine(at_once), make_batch(3))
    finish(desk)
    assert sorted(desk.results) == [0, 1, 2]
    result, line = desk.results[1], desk.lines()[1]
    assert result[:7] == (1, 0, 200, "", 1, 2, 3)
    assert (line["id"], line["custom_id"], line["line"], line["error"]) == ("job-1", "id-1", 2, None)
    meta = line["meta"]
    assert (meta["model"], meta["engine"]) == ("m", "sim test")
    assert (meta["model_revision"], meta["model_digest"]) == ("rev", "d")
    assert (meta["attempts"], meta["deliveries"], meta["worker"]) == (1, 2, "w")
    assert meta["request_sha256"] == request_sha256("/v1/chat/completions", b'{"i":1}')
    assert meta["queue_s"] > 0
    assert meta["started_at"] <= meta["finished_at"]


def test_what_others_brought_is_not_run() -> None:
    desk = Desk(ScriptedEngine(at_once), make_batch(4), got=0b0101)
    finish(desk)
    assert sorted(desk.results) == [1, 3]
    nothing = Desk(ScriptedEngine(at_once), make_batch(2), got=0b11)
    finish(nothing)
    assert not nothing.results


def test_final_errors_are_final_at_once() -> None:
    async def refuse(_body: bytes, _call: int) -> Answer:
        return Answer(400, b'{"error":{"message":"no such parameter"}}')

    desk = Desk(ScriptedEngine(refuse), make_batch(1))
    finish(desk)
    assert desk.results[0][2:5] == (400, "rejected", 1)
    assert desk.lines()[0]["response"]["body"] == {"error": {"message": "no such parameter"}}
    assert desk.lines()[0]["error"] == {"code": "rejected", "message": "no such parameter"}


def test_waits_between_attempts_hold_no_place() -> None:
    inside: list[int] = []

    async def busy(_body: bytes, _call: int) -> Answer:
        inside.append(desk.places)
        return BUSY

    desk = Desk(ScriptedEngine(busy), make_batch(1))
    asyncio_places: list[int] = []

    async def watch() -> None:
        running = asyncio.create_task(desk.run.run())
        await asyncio.sleep(0.5)
        asyncio_places.append(desk.places)
        await running

    run_virtual(watch())
    assert asyncio_places == [0]
    assert inside == [1, 1, 1, 1]
    times = desk.engine.calls[b'{"i":0}']
    for waited, stated in zip([b - a for a, b in pairwise(times)], (1, 2, 4), strict=True):
        assert 0.8 * stated <= waited <= 1.2 * stated
    assert desk.results[0][2:5] == (503, "overloaded", 4)


def test_success_of_retries_is_what_the_formula_says() -> None:
    """p = 0.8, r = 2: 1 - 0.2^3 = 0.992 of 5,000 requests, and the waits seen are 1 and 2 s, each +-20 %."""
    luck = random.Random(7)

    async def flaky(_body: bytes, _call: int) -> Answer:
        await asyncio.sleep(0.1)
        return OK if luck.random() < 0.8 else BUSY

    engine = ScriptedEngine(flaky)
    desks = [Desk(engine, make_batch(50, max_retries=2, first=50 * i), seed=i) for i in range(100)]

    async def run_all() -> None:
        await asyncio.gather(*(desk.run.run() for desk in desks))

    run_virtual(run_all())
    results = [result for desk in desks for result in desk.results.values()]
    assert len(results) == 5000
    assert sum(result.status == 200 for result in results) / 5000 == pytest.approx(0.992, abs=0.004)
    assert {result.attempts for result in results} == {1, 2, 3}
    for retry, stated in ((0, 1.0), (1, 2.0)):
        waits = [times[retry + 1] - times[retry] - 0.1 for times in engine.calls.values() if len(times) > retry + 1]
        assert len(waits) > 100
        assert 0.8 * stated <= min(waits) < 0.85 * stated
        assert 1.15 * stated < max(waits) <= 1.2 * stated + 1e-6
        assert sum(waits) / len(waits) == pytest.approx(stated, rel=0.03)


def test_timeout_is_retried_once_and_says_what_time_it_had() -> None:
    desk = Desk(ScriptedEngine(never), make_batch(2, timeout_s=30))
    finish(desk)
    assert [result[2:5] for result in desk.results.values()] == [(504, "timeout", 2)] * 2
    assert desk.engine.cancelled == 4
    assert desk.lines()[0]["error"]["message"] == "no answer within 30 s"
    first, second = desk.engine.calls[b'{"i":0}']
    assert 30 + 0.8 <= second - first <= 30 + 1.2


def test_a_400_after_our_own_cancellation_is_a_timeout() -> None:
    async def answers_cancellation(_body: bytes, _call: int) -> Answer:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return Answer(400, b'{"error":{"message":"Client disconnected"}}')
        return OK

    desk = Desk(ScriptedEngine(answers_cancellation), make_batch(1, timeout_s=5, max_retries=0))
    finish(desk)
    assert desk.results[0][2:5] == (504, "timeout", 1)

    async def abandoned() -> None:
        running = asyncio.create_task(other.run.run())
        await asyncio.sleep(1)
        other.run.abandon(1)
        await running

    other = Desk(ScriptedEngine(answers_cancellation), make_batch(1))
    run_virtual(abandoned())
    assert not other.results


def test_each_request_has_its_own_time() -> None:
    async def slow_after_a_retry(_body: bytes, call: int) -> Answer:
        if call == 1:
            await asyncio.sleep(6)
            return BUSY
        await asyncio.sleep(9)
        return OK

    desk = Desk(ScriptedEngine(slow_after_a_retry), make_batch(1, timeout_s=10))
    finish(desk)
    assert desk.results[0][2:5] == (200, "", 2)


def test_an_engine_that_does_not_let_go_is_stuck() -> None:
    release: list[asyncio.Event] = []

    async def deaf(_body: bytes, _call: int) -> Answer:
        event = asyncio.Event()
        release.append(event)
        while not event.is_set():
            try:
                await event.wait()
            except asyncio.CancelledError:
                continue
        return OK

    async def watch() -> list[bool]:
        running = asyncio.create_task(desk.run.run())
        await asyncio.sleep(10 + GRACE_S / 2)
        seen = [desk.run.stuck]
        await asyncio.sleep(GRACE_S)
        seen.append(desk.run.stuck)
        desk.run.abandon(0b11)
        for event in release:
            event.set()
        await running
        return seen

    desk = Desk(ScriptedEngine(deaf), make_batch(2, timeout_s=10))
    assert run_virtual(watch()) == [False, True]


@pytest.mark.parametrize("healthy", [True, False])
def test_an_answer_cut_short_is_never_a_result(healthy: bool) -> None:
    async def cuts_once(_body: bytes, call: int) -> Answer:
        return CUT if call == 1 else OK

    desk = Desk(ScriptedEngine(cuts_once, dead_after=None if healthy else 1), make_batch(1, max_retries=0))
    if healthy:
        finish(desk)
        assert desk.results[0][2:5] == (200, "", 1)
        assert len(desk.cuts) == 1, "and the worker is told that somebody told the engine to end"
    else:
        with pytest.raises(EngineDeadError):
            run_virtual(desk.run.run())
        assert not desk.results


def test_an_engine_that_always_cuts_short_fails_the_request() -> None:
    async def cuts(_body: bytes, _call: int) -> Answer:
        return CUT

    desk = Desk(ScriptedEngine(cuts), make_batch(1, max_retries=0))
    finish(desk)
    assert desk.results[0][2:4] == (500, "engine_error")
    assert desk.lines()[0]["response"]["body"]["error"]["type"] == "engine_error"


def test_a_dead_engine_records_nothing_as_failed() -> None:
    async def dies(body: bytes, _call: int) -> Answer:
        await asyncio.sleep(5 if body == b'{"i":1}' else 1)
        if body == b'{"i":1}':
            raise EngineDeadError("gone")
        return OK if body == b'{"i":0}' else await never(body, 1)

    desk = Desk(ScriptedEngine(dies), make_batch(4))
    with pytest.raises(EngineDeadError):
        run_virtual(desk.run.run())
    assert list(desk.results) == [0]
    assert (desk.places, desk.engine.inside, desk.engine.cancelled) == (0, 0, 2)


def test_abandoned_requests_stop_and_their_mates_go_on() -> None:
    async def second(_body: bytes, _call: int) -> Answer:
        await asyncio.sleep(10)
        return OK

    async def watch() -> None:
        running = asyncio.create_task(desk.run.run())
        await asyncio.sleep(5)
        desk.run.abandon(0b101)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert desk.engine.inside == 1
        await running

    desk = Desk(ScriptedEngine(second), make_batch(3))
    run_virtual(watch())
    assert list(desk.results) == [1]
    assert desk.engine.cancelled == 2


def test_abandoned_before_it_began_and_in_a_wait() -> None:
    desk = Desk(ScriptedEngine(at_once), make_batch(2))
    desk.run.abandon(0b11)
    finish(desk)
    assert not desk.engine.calls

    async def busy(_body: bytes, _call: int) -> Answer:
        return BUSY

    async def watch() -> None:
        running = asyncio.create_task(waiting.run.run())
        await asyncio.sleep(0.5)
        waiting.run.abandon(1)
        await running

    waiting = Desk(ScriptedEngine(busy), make_batch(1))
    run_virtual(watch())
    assert not waiting.results
    assert waiting.places == 0


def test_cancelling_the_run_stops_everything() -> None:
    async def watch() -> None:
        running = asyncio.create_task(desk.run.run())
        await asyncio.sleep(1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    desk = Desk(ScriptedEngine(never), make_batch(3))
    run_virtual(watch())
    assert (desk.engine.inside, desk.engine.cancelled, desk.places) == (0, 3, 0)


def test_places_are_told_before_the_message_is_forgotten() -> None:
    seen: list[int] = []

    async def brief(_body: bytes, _call: int) -> Answer:
        await asyncio.sleep(1)
        return OK

    desk = Desk(ScriptedEngine(brief), make_batch(3))
    run_virtual(desk.run.run(on_begun=lambda: seen.append(desk.places)))
    assert seen == [3]
