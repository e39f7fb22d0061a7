"""Every way in which the real engine or its worker dies, really made: certified with its cause, and no request pays.

Two workers die at a time, each of something else; what they held is done by their next lives.
"""

import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from common.settings import Settings
from tests.acceptance.real_fleet import Life, RealFleet
from tests.collecting import Bench, Running, write_input
from tests.processes import ROOT, await_gone, started
from tests.servers import Server
from tests.waiting import wait_until

LONG_TEXT = "out of memory " * 100


def kill_core(life: Life) -> None:
    """As an operator would, or the kernel of a machine that is out of memory."""
    life.core.kill()


def hang_core(life: Life) -> None:
    """A step that does not end: the process lives and does nothing."""
    life.core.send_signal(signal.SIGSTOP)


def kill_worker(life: Life) -> None:
    """The engine core has to die with it."""
    life.worker.kill()


def take_memory_away(life: Life) -> None:
    """No page more than now: the next larger tensor cannot be had."""
    life.core.rlimit(resource.RLIMIT_AS, (1 << 20, 1 << 20))


@pytest.mark.kill
def test_six_deaths_without_a_result_are_enough(valkey: redis.Redis, valkey_server: Server, tmp_path: Path) -> None:
    """Every request kills its worker; the pauses between the lives are shortened, the lives are real."""
    settings = Settings(redis_url=valkey_server.url, batch_size=4, look_s=0.2)
    bench = Bench(tmp_path, valkey_server, write_input(tmp_path / "in.jsonl", 8), settings=settings)
    running = Running(bench.collector())
    command = [sys.executable, "-P", "-m", "tests.supervised", "hurry", valkey_server.url, "kill=hello"]
    log = tmp_path / "supervisor.log"
    variables = {"PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    with started(command, log=log, **variables) as supervisor:
        assert supervisor.wait(120) == 3, log.read_text()[-3000:]
    said = log.read_text()
    assert "6 deaths with work held and no result between" in said
    assert said.count('"event": "worker_ready"') >= 6
    running.collector.stop()
    wait_until(lambda: not running.alive(), timeout_s=10, description="the collector stops")
    assert {result["error"]["code"] for result in bench.results()} <= {"worker_lost"}


@pytest.mark.engine
@pytest.mark.kill
@pytest.mark.parametrize(
    ("deaths", "causes", "said"),
    [
        pytest.param((kill_core, hang_core), ("outside", "self"), ("engine_died", "engine_hung"), id="core"),
        pytest.param(
            (kill_worker, take_memory_away),
            ("outside", "self"),
            ("worker_died", "engine_died"),
            id="worker",
            marks=pytest.mark.slow_engine,
        ),
    ],
)
def test_two_deaths_and_no_request_pays(
    fleet: RealFleet, deaths: tuple[Callable[[Life], None], ...], causes: tuple[str, ...], said: tuple[str, ...]
) -> None:
    lives = fleet.ready()
    before = {name: len(fleet.events(name)) for name in said}
    job = fleet.job(64, max_tokens=200, text=LONG_TEXT)
    job.await_held(*lives)
    for life, death in zip(lives, deaths, strict=True):
        death(life)
    wait_until(lambda: all(map(fleet.cause, lives)), timeout_s=60, description="both deaths are certified")
    assert tuple(map(fleet.cause, lives)) == causes, fleet.last_words()
    for name in said:
        assert len(fleet.events(name)) > before[name]
    await_gone(process for life in lives for process in life.processes)
    results = job.await_good()
    second = fleet.ready()
    assert not {life.incarnation for life in second} & {life.incarnation for life in lives}
    assert {result["meta"]["deliveries"] for result in results} >= {2}, "nothing was lost with the dead"
    assert {result["meta"]["worker"] for result in results} & {life.incarnation for life in second}
