"""When a dead worker is started again, what its certificate says, and whose death the roster remembers."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rosters import add_elsewhere
from tests.waiting import wait_until
from worker.certificates import Cause, ExitStatus, cause_of
from worker.oom import RECENT_S, OomWatch, find_oom_file
from worker.restarts import SETTLED_S, Death, Decision, History, decide
from worker.roster import Roster, started_ticks

KILLED = Death(lived_s=5, results=3)
FAILED_START = Death(ready=False, lived_s=5)
BARREN = Death(held=True, lived_s=5)
IDLE = Death(lived_s=5)


def follow(*deaths: Death) -> list[Decision]:
    """What is decided after each of `deaths` in one slot."""
    history, decisions = History(), []
    for death in deaths:
        history, decision = decide(history, death)
        decisions.append(decision)
    return decisions


def test_pauses_grow_to_a_minute_and_go_on() -> None:
    pauses = [decision.pause_s for decision in follow(*[IDLE] * 9)]
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_in_virtual_time_a_worker_killed_every_30_s_is_back_a_second_later_each_time() -> None:
    now_s, up_s = 0.0, 0.0
    history = History()
    while now_s < 600:
        now_s += 30
        up_s += 30
        history, decision = decide(history, Death(results=50, held=True, lived_s=30))
        assert decision.action == "restart"
        now_s += decision.pause_s
    assert up_s / now_s > 0.96


def test_a_settled_life_begins_the_pauses_anew() -> None:
    decisions = follow(IDLE, IDLE, IDLE, Death(lived_s=SETTLED_S), IDLE)
    assert [decision.pause_s for decision in decisions] == [1, 2, 4, 1, 2]


def test_three_failed_starts_in_a_row_are_the_last() -> None:
    assert [decision.action for decision in follow(*[FAILED_START] * 3)] == ["restart", "restart", "give_up"]


def test_failed_starts_are_counted_in_a_row() -> None:
    decisions = follow(FAILED_START, FAILED_START, KILLED, FAILED_START, FAILED_START)
    assert {decision.action for decision in decisions} == {"restart"}


def test_six_deaths_with_work_held_and_no_result_are_the_last() -> None:
    assert [decision.action for decision in follow(*[BARREN] * 6)] == ["restart"] * 5 + ["give_up"]


def test_a_result_in_between_begins_the_count_anew() -> None:
    decisions = follow(*[BARREN] * 5, KILLED, *[BARREN] * 5)
    assert {decision.action for decision in decisions} == {"restart"}


def test_deaths_without_work_do_not_count_as_barren() -> None:
    assert {decision.action for decision in follow(*[IDLE] * 50)} == {"restart"}


@pytest.mark.parametrize(
    ("death", "action"),
    [
        (Death(ready=False, hopeless=True), "give_up"),
        (Death(drained=True), "retire"),
        (Death(ready=False, blameless=True), "restart"),
    ],
)
def test_the_first_death_may_be_the_last(death: Death, action: str) -> None:
    assert follow(death)[0].action == action


def test_an_engine_that_was_up_once_may_come_up_again() -> None:
    hopeless = Death(ready=False, hopeless=True)
    assert [decision.action for decision in follow(KILLED, *[hopeless] * 3)] == ["restart"] * 3 + ["give_up"]


def test_leaving_for_want_of_redis_is_no_failed_start() -> None:
    deaths = [Death(ready=False, blameless=True)] * 10
    assert {decision.action for decision in follow(*deaths)} == {"restart"}


@pytest.mark.parametrize(
    ("status", "out_of_memory", "told_to_leave", "cause"),
    [
        (ExitStatus(signum=signal.SIGSEGV), False, False, Cause.SELF),
        (ExitStatus(signum=signal.SIGBUS), False, False, Cause.SELF),
        (ExitStatus(signum=signal.SIGFPE), False, False, Cause.SELF),
        (ExitStatus(signum=signal.SIGILL), False, False, Cause.SELF),
        (ExitStatus(signum=signal.SIGABRT), False, False, Cause.SELF),
        (ExitStatus(signum=signal.SIGABRT), False, True, Cause.SELF),
        (ExitStatus(code=70), False, False, Cause.SELF),
        (ExitStatus(code=72), False, False, Cause.SELF),
        (ExitStatus(signum=signal.SIGKILL), True, False, Cause.SELF),
        (ExitStatus(code=71), True, False, Cause.SELF),
        (ExitStatus(signum=signal.SIGKILL), False, False, Cause.OUTSIDE),
        (ExitStatus(signum=signal.SIGTERM), False, False, Cause.OUTSIDE),
        (ExitStatus(signum=signal.SIGTERM), True, False, Cause.OUTSIDE),
        (ExitStatus(code=71), False, False, Cause.OUTSIDE),
        (ExitStatus(code=1), False, False, Cause.OUTSIDE),
        (ExitStatus(code=0), False, False, Cause.LEFT),
        (ExitStatus(code=130), False, False, Cause.LEFT),
        (ExitStatus(code=3), False, False, Cause.LEFT),
        (ExitStatus(code=75), False, False, Cause.LEFT),
        (ExitStatus(code=78), False, False, Cause.LEFT),
        (ExitStatus(signum=signal.SIGKILL), False, True, Cause.LEFT),
        (ExitStatus(signum=signal.SIGTERM), False, True, Cause.LEFT),
        (ExitStatus(code=1), False, True, Cause.LEFT),
    ],
)
def test_cause(status: ExitStatus, out_of_memory: bool, told_to_leave: bool, cause: Cause) -> None:
    assert cause_of(status, out_of_memory=out_of_memory, told_to_leave=told_to_leave) == cause


def test_out_of_memory_is_a_count_that_rose_lately(tmp_path: Path) -> None:
    file, now = tmp_path / "memory.events", [0.0]
    file.write_text("low 0\noom 4\noom_kill 4\noom_group_kill 0\n")
    watch = OomWatch(file, now=lambda: now[0])
    assert not watch.look()
    file.write_text("low 0\noom 5\noom_kill 5\n")
    assert watch.look()
    now[0] = RECENT_S
    assert watch.look()
    now[0] = RECENT_S + 1
    assert not watch.look()


def test_without_a_count_nothing_was_out_of_memory(tmp_path: Path) -> None:
    assert not OomWatch(None).look()
    assert not OomWatch(tmp_path / "absent").look()


@pytest.mark.parametrize(
    ("cgroup", "file"),
    [
        ("0::/system.slice/w.service\n", "system.slice/w.service/memory.events"),
        ("0::/\n", "memory.events"),
        ("4:memory:/box/7\n0::/\n", "memory/box/7/memory.oom_control"),
        ("9:cpu,memory:/hidden\n", "memory/memory.oom_control"),
    ],
)
def test_the_count_is_found_in_both_versions_of_cgroups(tmp_path: Path, cgroup: str, file: str) -> None:
    listing, count = tmp_path / "cgroup", tmp_path / "fs" / file
    listing.write_text(cgroup)
    count.parent.mkdir(parents=True)
    count.touch()
    assert find_oom_file(cgroup=listing, root=tmp_path / "fs") == count


def test_the_roster_remembers_only_those_whose_supervisor_is_gone_too(tmp_path: Path) -> None:
    roster = Roster(redis_url="redis://here", folder=tmp_path)
    worker = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    roster.add("host-0-00000000", worker.pid)
    assert roster.abandoned() == []
    worker.kill()
    wait_until(lambda: started_ticks(worker.pid) is None, timeout_s=5, description="the worker is gone")
    assert roster.abandoned() == [], "its supervisor, this process, will certify it"
    worker.wait()

    add_elsewhere(tmp_path, "host-1-11111111", worker.pid)
    (entry,) = roster.abandoned()
    assert entry.cause is None
    roster.conclude(entry.incarnation, Cause.LEFT)
    (entry,) = roster.abandoned()
    assert entry.cause is Cause.LEFT
    assert entry.incarnation == "host-1-11111111"
    elsewhere = Roster(redis_url="redis://elsewhere", folder=tmp_path)
    assert elsewhere.abandoned() == [entry], "an embedded Redis has another address in the next run"
    elsewhere.settle(entry)
    assert roster.abandoned() == [entry], "its own Redis may still ask for it"
    roster.settle(entry)
    assert roster.abandoned() == []


def test_the_roster_drops_what_it_cannot_read(tmp_path: Path) -> None:
    (tmp_path / "torn.json").write_text('{"incarnation": "ho')
    assert Roster(redis_url="redis://here", folder=tmp_path).abandoned() == []
    assert not (tmp_path / "torn.json").exists()
