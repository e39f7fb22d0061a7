"""Virtual time: jumps when nothing can run, and says so when nothing ever will."""

import asyncio
import time

import pytest

from worker.clock import LoopClock, run_virtual


def test_an_hour_takes_no_time_and_order_is_kept() -> None:
    order: list[float] = []

    async def nap(duration_s: float) -> None:
        await LoopClock().sleep(duration_s)
        order.append(LoopClock().monotonic())

    async def main() -> None:
        await asyncio.gather(*(nap(duration_s) for duration_s in (3600, 0.5, 60)))

    started = time.monotonic()
    run_virtual(main())
    assert order == pytest.approx([0.5, 60, 3600])
    assert time.monotonic() - started < 5


def test_timeouts_are_virtual_too() -> None:
    async def main() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1800):
                await asyncio.Event().wait()
        return LoopClock().monotonic()

    assert run_virtual(main()) == pytest.approx(1800)


def test_a_wait_for_ever_is_an_error() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(RuntimeError, match="nothing left"):
        run_virtual(main())


def test_on_an_ordinary_loop_the_clock_is_real() -> None:
    async def main() -> float:
        return LoopClock().monotonic()

    before = time.monotonic()
    assert before <= asyncio.run(main()) <= time.monotonic()
