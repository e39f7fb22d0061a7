"""How a run ends when several of its requests end in one tick: nothing finished is lost, nothing waited for."""

import asyncio

import pytest

from common.errors import EngineDeadError
from tests.scripted_engine import OK, Desk, ScriptedEngine, make_batch
from worker.clock import run_virtual
from worker.engines.base import Answer

FIRST, SECOND = b'{"i":0}', b'{"i":1}'


def test_what_ended_beside_a_failure_has_its_result() -> None:
    async def second_fails(body: bytes, _call: int) -> Answer:
        await asyncio.sleep(1)
        if body == SECOND:
            raise EngineDeadError("gone")
        return OK

    desk = Desk(ScriptedEngine(second_fails), make_batch(3))
    with pytest.raises(EngineDeadError):
        run_virtual(desk.run.run())
    assert sorted(desk.results) == [0, 2]
    assert desk.places == 0


def test_a_failure_stops_what_still_runs() -> None:
    async def first_fails(body: bytes, _call: int) -> Answer:
        await asyncio.sleep(1 if body == FIRST else 1000)
        raise EngineDeadError("gone")

    desk = Desk(ScriptedEngine(first_fails), make_batch(4))

    async def timed() -> float:
        with pytest.raises(EngineDeadError):
            await desk.run.run()
        return asyncio.get_running_loop().time()

    assert run_virtual(timed()) == pytest.approx(1.0)
    assert (desk.engine.cancelled, desk.engine.inside, desk.places) == (3, 0, 0)


def test_a_request_that_the_engine_cancels_by_itself_is_not_waited_for() -> None:
    async def cancels(body: bytes, _call: int) -> Answer:
        if body == FIRST:
            raise asyncio.CancelledError
        return OK

    desk = Desk(ScriptedEngine(cancels), make_batch(2))
    run_virtual(desk.run.run())
    assert sorted(desk.results) == [1]


def test_abandoned_before_the_first_step() -> None:
    async def answer(_body: bytes, _call: int) -> Answer:
        return OK

    desk = Desk(ScriptedEngine(answer), make_batch(3))

    async def run() -> None:
        running = asyncio.ensure_future(desk.run.run())
        asyncio.get_running_loop().call_soon(desk.run.abandon, 0b111)
        await running

    run_virtual(run())
    assert (desk.places, desk.results, desk.engine.calls) == (0, {}, {})
