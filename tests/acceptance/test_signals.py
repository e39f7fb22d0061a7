"""Signals to workers, their groups and their engines, at every moment: no cut answer is a result, nothing is left.

Those of the real engine are few, since each costs a start; what does not depend on the engine is simulated.
"""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import ExitStack, closing
from pathlib import Path

import psutil
import pytest
import redis

from common.settings import Settings
from tests.acceptance.real_fleet import READY_S, RealFleet
from tests.collecting import Bench, Running, write_input
from tests.processes import await_gone, descendants, environment, started_worker
from tests.servers import VALKEY, Server
from tests.waiting import wait_until
from tests.worker_parts import Job, make_batch
from tests.worker_process import started_worker as started_process
from worker.options import SimOptions

LONG = 10_000


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "worker.log"


def test_celerys_shutdown_drains(valkey: redis.Redis, valkey_server: Server, log: Path) -> None:
    """What is in flight is finished, what waits is left to others, exit code 0."""
    job = Job(valkey)
    job.offer(make_batch(4, tokens=[100] * 4), make_batch(4, mb=1))
    with started_process(valkey_server, log, sim=SimOptions(places=4)) as worker:
        worker.hint(0)
        wait_until(lambda: job.stage() == "HELD", timeout_s=10, description="it holds the micro-batch")
        command = [sys.executable, "-m", "celery", "-A", "worker.app", "control", "shutdown"]
        variables = environment(BAKEHOUSE_REDIS_URL=valkey_server.url)
        subprocess.run(command, env=variables, capture_output=True, timeout=60, check=True, cwd=log.parent)
        assert worker.end() == 0, log.read_text()[-3000:]
        assert job.seqs() == [0, 1, 2, 3]
        assert worker.waiting_hints() == 0
    assert "Traceback" not in log.read_text()


@pytest.mark.parametrize(
    ("signals", "drain_s", "code"),
    [
        pytest.param([signal.SIGTERM, signal.SIGTERM], "1", 3, id="drain"),
        pytest.param([signal.SIGINT, signal.SIGINT], "600", 130, id="abort"),
        pytest.param([signal.SIGTERM], "600", 0, id="idle"),
    ],
)
def test_signals_while_redis_is_gone(
    tmp_path: Path, log: Path, signals: list[signal.Signals], drain_s: str, code: int
) -> None:
    """3 where a micro-batch could not be handed back: its hold expires; none of it is taken for done."""
    server = Server(VALKEY, tmp_path / "data").start()
    try:
        job = Job(server.client())
        job.offer(make_batch(4, tokens=[LONG] * 4))
        with started_process(server, log, sim=SimOptions(), BAKEHOUSE_DRAIN_TIMEOUT_S=drain_s) as worker:
            if code:
                worker.hint(0)
                wait_until(lambda: job.stage() == "HELD", timeout_s=10, description="it holds the micro-batch")
            server.kill()  # where it holds nothing: perhaps while its consumer still connects
            wait_until(lambda: "redis_lost" in log.read_text(), timeout_s=15, description="it misses Redis")
            began = time.monotonic()
            for signum in signals:
                worker.process.send_signal(signum)
                wait_until(lambda: "worker_draining" in log.read_text(), timeout_s=5, description="it drains")
            assert worker.end(30) == code, log.read_text()[-3000:]
            assert time.monotonic() - began < 12
    finally:
        server.stop()


def test_a_rolling_restart_costs_nothing(valkey: redis.Redis, valkey_server: Server, tmp_path: Path) -> None:
    """Each of two loaded workers is replaced in turn: no result, no attempt and no blame, every exit code 0."""
    rows = 1200
    settings = Settings(redis_url=valkey_server.url, batch_size=8, look_s=0.5)
    bench = Bench(tmp_path, valkey_server, write_input(tmp_path / "in.jsonl", rows), settings=settings)
    flags = ("--engine", "sim", "--sim-seconds", "0.1", "--sim-places", "16", "--served-model-name", "m")
    with ExitStack() as stack:

        def start(name: str) -> "subprocess.Popen[bytes]":
            return stack.enter_context(started_worker(valkey_server, *flags, log=tmp_path / f"{name}.log"))

        fleet = [start("first"), start("second")]
        running = Running(bench.collector())
        for number, process in enumerate(fleet):
            loaded = len(durable_results(bench)) + 64
            await_results(bench, loaded)
            process.send_signal(signal.SIGTERM)
            assert process.wait(40) == 0
            assert running.alive(), "the job must outlast the restarts"
            start(f"successor-{number}")
        assert running.join(timeout_s=90).exit_code == 0
    bench.check_whole(rows)
    assert {(result["meta"]["attempts"], result["meta"]["deliveries"]) for result in bench.results()} == {(1, 1)}
    assert len({result["meta"]["worker"] for result in bench.results()}) == 4
    with closing(sqlite3.connect(bench.directory.journal_path)) as journal:
        assert journal.execute("SELECT count(*) FROM loss").fetchone() == (0,)


def await_results(bench: Bench, least: int) -> None:
    """Wait until so many are in the ordered file."""
    wait_until(lambda: len(durable_results(bench)) >= least, timeout_s=60, description=f"{least} results")


def durable_results(bench: Bench) -> list[dict[str, object]]:
    """The ordered file so far."""
    return bench.results() if bench.directory.output_path.exists() else []


def signal_group(fleet: RealFleet) -> None:
    """Ctrl-C in the worker's group, and at once the end of its control group."""
    os.killpg(fleet.workers()[0].pid, signal.SIGINT)
    os.killpg(fleet.workers()[0].pid, signal.SIGTERM)


def kill_worker(fleet: RealFleet) -> None:
    """And see that no next one starts."""
    fleet.workers()[0].kill()
    fleet.supervisor.terminate()


def kill_supervisor(fleet: RealFleet) -> None:
    """Nobody is left to end the group."""
    fleet.supervisor.kill()


@pytest.mark.engine
@pytest.mark.kill
@pytest.mark.slow_engine
def test_signals_while_the_engine_starts(tmp_path: Path) -> None:
    """To the group, to the worker, to the supervisor, as soon as there is an engine core: all of it ends at once."""
    ends = {signal_group: 0, kill_worker: 0, kill_supervisor: -signal.SIGKILL}
    fleets = {strike: RealFleet(tmp_path / strike.__name__) for strike in ends}
    below: dict[str, list[psutil.Process]] = {}
    try:
        for fleet in fleets.values():
            fleet.start(workers=1)

        def strike_those_with_a_core() -> bool:
            for strike, fleet in fleets.items():
                if strike.__name__ not in below and fleet.cores():
                    below[strike.__name__] = descendants(fleet.supervisor.pid)
                    strike(fleet)
            return len(below) == len(fleets)

        wait_until(strike_those_with_a_core, timeout_s=READY_S, description="each has started an engine core")
        for strike, code in ends.items():
            assert fleets[strike].supervisor.wait(20) == code, fleets[strike].last_words()
            await_gone(below[strike.__name__], timeout_s=5)
            assert not fleets[strike].events("worker_ready")
    finally:
        for fleet in fleets.values():
            fleet.close()


@pytest.mark.engine
@pytest.mark.kill
def test_two_interrupts_abort_and_hand_back(fleet: RealFleet) -> None:
    lives = fleet.ready()
    job = fleet.job(64, max_tokens=600)
    job.await_held(*lives)
    wait_until(job.results, timeout_s=60, description="some are finished, others in flight")
    fleet.supervisor.send_signal(signal.SIGINT)
    wait_until(lambda: len(fleet.draining()) == 2, timeout_s=10, description="both drain")
    fleet.supervisor.send_signal(signal.SIGINT)
    assert fleet.supervisor.wait(15) == 130, fleet.last_words()
    await_gone(process for life in lives for process in life.processes)
    assert not any(map(job.held_by, lives)), "all is handed back"
    job.stop()
    job.check_answers(job.results())


@pytest.mark.engine
@pytest.mark.kill
@pytest.mark.slow_engine
def test_signals_to_engine_core_and_group(fleet: RealFleet) -> None:
    """An engine core told to end is an engine killed from outside; a Ctrl-C in the group is a drain."""
    lives = fleet.ready()
    job = fleet.job(64, max_tokens=300)
    job.await_held(*lives)
    told, grouped = lives
    told.core.send_signal(signal.SIGINT)
    told.core.terminate()
    told.core.terminate()
    os.killpg(grouped.worker.pid, signal.SIGINT)
    wait_until(lambda: fleet.cause(told) and fleet.cause(grouped), timeout_s=60, description="both are certified")
    assert (fleet.cause(told), fleet.cause(grouped)) == ("outside", "left"), fleet.last_words()
    job.await_good()
    (last,) = fleet.ready(workers=1)
    rest = fleet.job(16, max_tokens=1500)
    rest.await_held(last)
    os.killpg(last.worker.pid, signal.SIGTERM)
    assert fleet.supervisor.wait(40) == 0, fleet.last_words()
    assert not rest.held_by(last), "all is handed back"
    await_gone(last.processes)
    fleet.ready(workers=1)
    rest.await_good()
    fleet.stop()
