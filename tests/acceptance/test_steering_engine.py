"""A cancel while the real engine generates: its requests stop inside it in time, and the next job has it for itself."""

import time

import pytest

from common import keys
from producer.steering import Wish
from producer.wish_file import leave_wish
from tests.acceptance.real_fleet import Life, RealFleet
from tests.waiting import wait_until

STOPPED_S = 10.0
"""From the command until nothing runs in any engine."""


def in_flight(fleet: RealFleet, lives: list[Life]) -> int:
    """Requests that the engines have not let go of."""
    return sum(int(fleet.client.hget(keys.worker(life.incarnation), "in_flight") or 0) for life in lives)


def worked_s(lives: list[Life]) -> float:
    """Processor seconds of their engine cores."""
    return sum(sum(life.core.cpu_times()[:2]) for life in lives)


@pytest.mark.engine
def test_requests_stop_inside_the_real_engine(fleet: RealFleet) -> None:
    """Those at work, those that wait in the engine for a place, and those of the window that no worker has."""
    lives = fleet.ready()
    job = fleet.job(200, max_tokens=1500)
    job.await_held(*lives)
    began_s = worked_s(lives)
    wait_until(lambda: worked_s(lives) > began_s + 1, timeout_s=60, description="the engines generate")
    assert in_flight(fleet, lives), "those at work are seen"
    leave_wish(job.bench.directory.want_path, Wish.make("cancel"))
    asked_at = time.monotonic()
    wait_until(lambda: not in_flight(fleet, lives), timeout_s=STOPPED_S, description="nothing runs in any engine")
    assert time.monotonic() - asked_at <= STOPPED_S
    outcome = job.running.join(timeout_s=20)
    assert (outcome.status, outcome.exit_code) == ("cancelled", 1)
    job.bench.check_whole(200)
    results = job.results()
    cancelled = [result for result in results if result["error"]]
    assert {result["error"]["code"] for result in cancelled} == {"cancelled"}
    assert len(cancelled) > 100
    job.check_answers([result for result in results if not result["error"]])
    fleet.job(8, max_tokens=8).await_good(timeout_s=60)
    assert [life.incarnation for life in fleet.ready()] == [life.incarnation for life in lives], "no engine has ended"
