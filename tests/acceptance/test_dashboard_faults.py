"""Each fault of a fleet shows where an operator looks: the named panel moves, the named alert fires.

A real Prometheus watches a fleet under load while it retries, loses a worker again and again, meets a poison row, is
late, fills Redis, drains, loses a collector, all workers, and at last Redis. `make test-dashboards` runs it, about six
minutes.
"""

import math
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.dashboard_pictures import PICTURES, draw
from tests.dashboards import Dashboard
from tests.stand_in_nvml import COMPILER
from tests.waiting import wait_until
from tests.watched_fleet import LONG_TOKENS, WatchedFleet

pytestmark = [
    pytest.mark.dashboards,
    pytest.mark.kill,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(not shutil.which("prometheus"), reason="prometheus is not installed"),
    pytest.mark.skipif(COMPILER is None, reason="there is no C compiler for the stand-in of NVML"),
]
NAMES = ("fleet", "job", "redis")
PATIENCE_S = 150.0
SETTLE_S = 10.0
KILLS = 6


def rises(before: float, now: float) -> bool:
    """Whether it is more than it was."""
    return now > before


def above(limit: float) -> Callable[[float, float], bool]:
    """Whether it was not above `limit` and is now."""
    return lambda before, now: before <= limit < now


def below(limit: float) -> Callable[[float, float], bool]:
    """Whether it was not below `limit` and is now."""
    return lambda before, now: now < limit <= before


class Move(NamedTuple):
    """A value that must move when a fault is there. One that was not shown before was 0."""

    dashboard: str
    panel: str
    legend: str
    has_moved: Callable[[float, float], bool]


class Fault(NamedTuple):
    """What is done to the fleet, what must move, and which alerts must fire."""

    do: Callable[[WatchedFleet], object]
    moves: tuple[Move, ...]
    alerts: tuple[str, ...] = ()


def kill_again_and_again(fleet: WatchedFleet) -> None:
    """SIGKILL to each life of one worker."""
    for _ in range(KILLS):
        fleet.kill_worker("gpu")


def lose_a_collector(fleet: WatchedFleet) -> None:
    """SIGKILL to the late job's."""
    os.kill(LATE.pop(), 9)


def be_late(fleet: WatchedFleet) -> None:
    """Start a job whose deadline is near."""
    LATE.append(fleet.start_late_job(rows=4000, in_s=45))


def drain_one(fleet: WatchedFleet) -> None:
    """SIGTERM to a node that has long requests, with room in Redis again."""
    fleet.fill_redis(0.05)
    fleet.lines.add("long", 40, tokens=LONG_TOKENS)
    running = "max(bakehouse_requests_in_flight)"
    wait_until(lambda: fleet.prometheus.now(running)[0][1] >= 8, timeout_s=PATIENCE_S, description="they run")
    fleet.drain("plain")


LATE: list[int] = []
"""The collector of the late job."""
FAULTS = {
    "retries": Fault(
        lambda fleet: fleet.lines.add("flaky", 12),
        (Move("fleet", "Retries per second by kind", "overloaded", rises),),
    ),
    "failures": Fault(
        lambda fleet: fleet.lines.add("broken", 150),
        (
            Move("fleet", "Failure share now", "failure share now", above(0.05)),
            Move("job", "Failures by kind", "engine_error", rises),
            Move("job", "Failed", "failed", rises),
        ),
        ("BakehouseFailureShare",),
    ),
    "a poison row": Fault(
        lambda fleet: fleet.lines.add("poison", 1),
        (
            Move("fleet", "Redeliveries, duplicates, poison", "poison requests", rises),
            Move("fleet", "Engine restarts", "self", rises),
            Move("job", "Failures by kind", "worker_lost", rises),
        ),
    ),
    "redeliveries": Fault(
        kill_again_and_again,
        (
            Move("fleet", "Engine restarts", "outside", rises),
            Move("fleet", "Redeliveries, duplicates, poison", "micro-batches redelivered", rises),
            Move("job", "Lost and given out again", "redelivered", rises),
        ),
        ("BakehouseRedeliveries", "BakehouseCrashLoop"),
    ),
    "a late job": Fault(
        be_late,
        (
            Move("job", "Deadline margin", "deadline margin", below(0)),
            Move("fleet", "Backlog", "requests", rises),
        ),
        ("BakehouseDeadline",),
    ),
    "Redis near its limit": Fault(
        lambda fleet: fleet.fill_redis(0.78),
        (
            Move("redis", "Memory share", "memory share", above(0.75)),
            Move("fleet", "How full each part is", "Redis memory", above(0.75)),
        ),
        ("BakehouseRedisNearLimit",),
    ),
    "a drain": Fault(
        drain_one,
        (Move("fleet", "Holds and drains", "drains", rises), Move("fleet", "Live workers", "live workers", below(2))),
    ),
    "a collector gone": Fault(
        lose_a_collector,
        (
            Move("redis", "Jobs by collector", "gone", rises),
            Move("fleet", "Jobs without a collector", "jobs without a collector", rises),
        ),
        ("BakehouseUnseen", "BakehouseNoCollector"),
    ),
    "no worker": Fault(
        lambda fleet: fleet.drain("gpu"),
        (
            Move("fleet", "Live workers", "live workers", below(1)),
            Move("fleet", "Bottleneck now", "workers", rises),
            Move("redis", "Oldest hint", "oldest hint", above(30)),
        ),
        ("BakehouseNoWorker", "BakehouseJobStalled"),
    ),
    "Redis gone": Fault(
        lambda fleet: fleet.server.kill(),
        (Move("redis", "Redis answers", "redis answers", below(1)),),
        ("BakehouseRedisAway",),
    ),
}


class Course(NamedTuple):
    """What was seen while all of it was done."""

    fleet: WatchedFleet
    since: float
    until: float
    """Before Redis was ended."""
    moved: dict[tuple[str, Move], tuple[float, float]]
    """Fault and move -> the value before it, and the last one that was seen."""
    fired: dict[str, set[str]]
    """Fault -> those of its alerts that fired."""


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Course]:
    """The fleet, after all that is done to it."""
    with WatchedFleet(tmp_path_factory.mktemp("watched")) as fleet:
        since = until = time.time()
        steady = Move("fleet", "Results per second", "results per second", above(5))
        wait_until(lambda: value(fleet, steady) > 5, timeout_s=PATIENCE_S, description="the fleet is under load")
        moved: dict[tuple[str, Move], tuple[float, float]] = {}
        fired: dict[str, set[str]] = {}
        for name, fault in FAULTS.items():
            until = time.time()
            seen = strike(fleet, fault)
            moved |= {(name, move): values for move, values in seen[0].items()}
            fired[name] = seen[1]
        if folder := os.environ.get(PICTURES):
            for dashboard in NAMES:
                into = Path(folder) / f"dashboard-{dashboard}.png"
                draw(Dashboard(dashboard), fleet.prometheus, since=since, until=until, into=into)
        yield Course(fleet, since, until, moved, fired)


def strike(fleet: WatchedFleet, fault: Fault) -> tuple[dict[Move, tuple[float, float]], set[str]]:
    """Do it, and look until all has moved and fired that should, or for a while."""
    before = values_before(fleet, fault)
    seen, fired = {move: (old, old) for move, old in before.items()}, set[str]()
    fault.do(fleet)
    until_s = time.monotonic() + PATIENCE_S

    def look() -> bool:
        for move, old in before.items():
            if not move.has_moved(*seen[move]):
                seen[move] = old, value(fleet, move)
        fired.update(fleet.firing() & set(fault.alerts))
        done = all(move.has_moved(*values) for move, values in seen.items()) and fired == set(fault.alerts)
        return done or time.monotonic() > until_s

    wait_until(look, timeout_s=2 * PATIENCE_S, description="it was looked for")
    return seen, fired


def values_before(fleet: WatchedFleet, fault: Fault) -> dict[Move, float]:
    """What its panels show before it; 0 where they show nothing, also after some scrapes: one may have failed."""
    found = {move: value(fleet, move) for move in fault.moves}
    until_s = time.monotonic() + SETTLE_S

    def look() -> bool:
        found.update({move: value(fleet, move) for move, old in found.items() if math.isnan(old)})
        return not any(map(math.isnan, found.values())) or time.monotonic() > until_s

    wait_until(look, timeout_s=2 * PATIENCE_S, description="it was looked for")
    return {move: 0.0 if math.isnan(old) else old for move, old in found.items()}


def value(fleet: WatchedFleet, move: Move) -> float:
    """What its panel shows of it now; NaN where it shows nothing, which is no move in either direction."""
    return Dashboard(move.dashboard).shown(fleet.prometheus, move.panel).get(move.legend, math.nan)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_moves_its_panels(course: Course, name: str) -> None:
    seen = {move: values for (fault, move), values in course.moved.items() if fault == name}
    assert seen
    assert {move[:3]: values for move, values in seen.items() if not move.has_moved(*values)} == {}


@pytest.mark.parametrize("name", [name for name, fault in FAULTS.items() if fault.alerts])
def test_a_fault_fires_its_alerts(course: Course, name: str) -> None:
    assert course.fired[name] == set(FAULTS[name].alerts)


@pytest.mark.parametrize("name", NAMES)
def test_every_query_gives_data(course: Course, name: str) -> None:
    given = Dashboard(name).all_values(course.fleet.prometheus, since=course.since, until=course.until)
    assert [(query.panel, query.legend) for query, values in given.items() if not values] == []


def test_every_rule_gives_data(course: Course) -> None:
    prometheus = course.fleet.prometheus
    rules = [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]
    assert {rule["name"]: rule["lastError"] for rule in rules if rule["health"] != "ok"} == {}
    alerts = {rule["name"] for rule in rules if rule["type"] == "alerting"}
    assert alerts == set().union(*course.fired.values()), "an alert that fired had data"
    until = time.time()
    recorded = [rule["name"] for rule in rules if rule["type"] == "recording"]
    assert [name for name in recorded if not prometheus.values(name, since=course.since, until=until)] == []
