"""Real supervisors, real signals: deaths are certified before the next life begins, and nothing outlives its parent."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import redis

from common import keys
from tests.processes import ROOT, descendants, environment, live_workers, started, started_worker, worker_command
from tests.servers import VALKEY, Server
from tests.supervised import CHILDREN
from tests.waiting import wait_until


class Supervised:
    """A supervisor over a stand-in worker (tests/supervised.py), and what can be seen of both from outside."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server = server
        self.client = server.client()
        self.behaviour = folder / "behaviour"
        self.log = folder / "supervisor.log"
        self.processes: list[subprocess.Popen[bytes]] = []
        self.cache = folder / "cache"

    def start(self, behaviour: str) -> "Supervised":
        """Start a supervisor whose workers behave so."""
        self.behaviour.write_text(behaviour)
        command = [sys.executable, "-P", "-m", "tests.supervised", "supervise", self.server.url, str(self.behaviour)]
        with self.log.open("ab") as output:
            variables = environment(XDG_CACHE_HOME=str(self.cache), PYTHONPATH=str(ROOT))
            self.processes.append(
                subprocess.Popen(command, env=variables, stderr=output, cwd=ROOT, start_new_session=True)
            )
        return self

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The supervisor started last."""
        return self.processes[-1]

    def worker(self, *, other_than: str = "") -> tuple[str, psutil.Process]:
        """The incarnation and the process of a live worker that is ready, once there is one."""
        found: list[tuple[str, psutil.Process]] = []

        def look() -> bool:
            for name in incarnations(self.server):
                pid = int(self.client.hget(keys.worker(name), "pid") or 0)
                if name != other_than and pid in {child.pid for child in descendants(self.process.pid)}:
                    found.append((name, psutil.Process(pid)))
            return bool(found)

        wait_until(look, timeout_s=20, description="a worker is ready")
        return found[0]

    def children(self) -> list[psutil.Process]:
        """What the worker has started, as an engine would its core."""
        return [psutil.Process(int(pid)) for pid in self.client.lrange(CHILDREN, 0, -1)]

    def cause(self, incarnation: str) -> str | None:
        """What the certificate of `incarnation` says."""
        said = self.client.hget(keys.DIED, incarnation)
        return said.decode() if isinstance(said, bytes) else said

    def await_cause(self, incarnation: str, cause: str) -> None:
        """Wait for the certificate of `incarnation`."""
        wait_until(lambda: self.cause(incarnation), timeout_s=5, description=f"{incarnation} is certified")
        assert self.cause(incarnation) == cause

    def events(self, name: str) -> list[dict[str, object]]:
        """The log lines of one event."""
        lines = [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
        return [line for line in lines if line["event"] == name]


@pytest.fixture
def supervised(valkey: redis.Redis, valkey_server: Server, tmp_path: Path) -> Iterator[Supervised]:
    """Nothing started yet; whatever is left at the end is killed."""
    own = Supervised(valkey_server, tmp_path)
    yield own
    for process in own.processes:
        left = descendants(process.pid)
        process.kill()
        process.wait()
        for child in left:
            if not gone(child):
                child.kill()


def incarnations(server: Server) -> list[str]:
    """Of the workers that are ready on `server`."""
    return [key.removeprefix(keys.WORKER_PREFIX) for key in live_workers(server)]


def gone(process: psutil.Process) -> bool:
    """Whether it runs no more (a zombie does not)."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.kill
def test_a_killed_worker_is_certified_and_started_again_without_its_orphans(supervised: Supervised) -> None:
    incarnation, worker = supervised.start("with children").worker()
    orphans = supervised.children()
    worker.kill()
    supervised.await_cause(incarnation, "outside")
    second, _ = supervised.worker(other_than=incarnation)
    assert second.rpartition("-")[0] == incarnation.rpartition("-")[0]
    assert all(gone(orphan) for orphan in orphans)


def test_a_fault_is_the_workers_own(supervised: Supervised) -> None:
    supervised.start("abort")
    wait_until(lambda: supervised.client.hlen(keys.DIED), timeout_s=10, description="a certificate")
    assert set(supervised.client.hvals(keys.DIED)) == {b"self"}
    assert 0 < supervised.client.ttl(keys.DIED) <= keys.DIED_LIFETIME_S


def test_after_a_death_by_want_of_memory_the_next_life_wants_less(supervised: Supervised) -> None:
    supervised.start("out of memory")
    wait_until(lambda: supervised.events("worker_died"), timeout_s=10, description="the first life is over")
    supervised.behaviour.write_text("obey")
    died = supervised.events("worker_died")[0]
    assert (died["cause"], died["out_of_memory"]) == ("self", True)
    second, _ = supervised.worker()
    assert supervised.client.hget(keys.worker(second), "share") == b"0.5"


@pytest.mark.parametrize(("code", "starts"), [(75, 3), (78, 1)])
def test_failed_starts_end_it(supervised: Supervised, code: int, starts: int) -> None:
    assert supervised.start(f"exit {code}").process.wait(20) == 3
    assert len(supervised.events("worker_started") + supervised.events("worker_restarted")) == starts
    assert set(supervised.client.hvals(keys.DIED)) == {b"left"}
    assert "gave up" in supervised.log.read_text()


def test_a_worker_that_left_by_itself_is_not_started_again(supervised: Supervised) -> None:
    _, worker = supervised.start("obedient").worker()
    worker.terminate()
    assert supervised.process.wait(10) == 0
    assert not supervised.events("worker_restarted")


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_drains(supervised: Supervised, signum: int) -> None:
    if signum == signal.SIGHUP and signal.getsignal(signum) == signal.SIG_IGN:
        pytest.skip("SIGHUP is ignored here, as under nohup, and so it is by what is started")
    incarnation, worker = supervised.start("obedient").worker()
    supervised.process.send_signal(signum)
    assert supervised.process.wait(30) == 0
    assert gone(worker)
    assert supervised.cause(incarnation) == "left"


def test_a_worker_that_does_not_drain_is_ended(supervised: Supervised) -> None:
    incarnation, worker = supervised.start("stubborn").worker()
    began = time.monotonic()
    supervised.process.send_signal(signal.SIGTERM)
    assert supervised.process.wait(20) == 0
    assert 9 < time.monotonic() - began < 15
    assert gone(worker)
    assert supervised.cause(incarnation) == "left"


def test_a_second_ctrl_c_aborts(supervised: Supervised) -> None:
    _, worker = supervised.start("stubborn").worker()
    supervised.process.send_signal(signal.SIGINT)
    wait_until(lambda: "draining" in supervised.log.read_text(), timeout_s=5, description="it drains")
    assert not gone(worker)
    supervised.process.send_signal(signal.SIGINT)
    assert supervised.process.wait(5) == 130
    assert gone(worker)


@pytest.mark.kill
def test_workers_die_with_their_supervisor_and_the_next_one_certifies_them(supervised: Supervised) -> None:
    incarnation, worker = supervised.start("with children").worker()
    orphans = supervised.children()
    supervised.process.kill()
    wait_until(lambda: gone(worker), timeout_s=5, description="the worker died with its supervisor")
    assert supervised.cause(incarnation) is None
    supervised.process.wait()
    assert not any(gone(orphan) for orphan in orphans), "nobody was there to end it"
    supervised.start("obedient").worker(other_than=incarnation)
    assert supervised.cause(incarnation) == "outside"
    assert all(gone(orphan) for orphan in orphans)


@pytest.mark.kill
def test_no_next_life_before_the_certificate(tmp_path: Path) -> None:
    server = Server(VALKEY, tmp_path / "data").start()
    supervised = Supervised(server, tmp_path)
    try:
        incarnation, worker = supervised.start("obedient").worker()
        server.kill()
        worker.kill()
        wait_until(lambda: supervised.events("redis_lost"), timeout_s=10, description="Redis is missed")
        os.kill(supervised.process.pid, signal.SIGCHLD)
        assert not supervised.events("worker_restarted")
        server.start()
        supervised.worker(other_than=incarnation)
        assert supervised.cause(incarnation) == "outside"
        assert supervised.events("redis_found")
    finally:
        supervised.process.kill()
        supervised.process.wait()
        server.stop()


def test_a_redis_that_is_not_there_is_waited_for_and_said(tmp_path: Path) -> None:
    command = worker_command("start", "--engine", "sim", "--redis-url", f"unix://{tmp_path}/nobody.sock")
    with started(command, log=tmp_path / "log") as process:
        wait_until(
            lambda: "waiting for Redis" in (tmp_path / "log").read_text(), timeout_s=10, description="it says so"
        )
        process.send_signal(signal.SIGINT)
        assert process.wait(5) == 0


def test_a_redis_that_would_evict_work_is_refused(tmp_path: Path) -> None:
    server = Server(VALKEY, tmp_path / "data", "--maxmemory-policy", "allkeys-lru").start()
    try:
        with started(
            worker_command("start", "--engine", "sim", "--redis-url", server.url), log=tmp_path / "log"
        ) as process:
            assert process.wait(20) == 2
        assert "noeviction" in (tmp_path / "log").read_text()
    finally:
        server.stop()


@pytest.mark.kill
def test_real_workers_are_pinned_restarted_and_drained(
    valkey: redis.Redis, valkey_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("SPT_NOENV", "1")  # or Celery's process title would overwrite what we look at
    log = tmp_path / "worker.log"
    arguments = ("--engine", "sim", "--gpus", "0,1", "--tensor-parallel-size", "1")
    with started_worker(valkey_server, *arguments, log=log) as process:
        wait_until(lambda: len(incarnations(valkey_server)) == 2, timeout_s=30, description="both are ready")
        seen = {
            name.split("-")[-2]: psutil.Process(int(valkey.hget(keys.worker(name), "pid") or 0))
            for name in incarnations(valkey_server)
        }
        assert {gpu: own.environ()["CUDA_VISIBLE_DEVICES"] for gpu, own in seen.items()} == {"0": "0", "1": "1"}
        before = set(incarnations(valkey_server))
        seen["0"].kill()
        wait_until(lambda: len(set(incarnations(valkey_server)) - before) == 1, timeout_s=30, description="a new life")
        assert list(valkey.hvals(keys.DIED)) == [b"outside"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0, log.read_text()[-3000:]
        assert all(gone(own) for own in seen.values())
