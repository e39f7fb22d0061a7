"""One worker process with Celery and a real Redis: hints in, results out, the gate, the drain, the ways it ends."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from common import keys
from tests.processes import environment
from tests.servers import VALKEY, Server
from tests.waiting import wait_until
from tests.worker_parts import JOB, Job, make_batch
from tests.worker_process import NAME, started_worker
from worker.options import SimOptions, WorkerOptions

LONG = 10_000


@pytest.fixture
def job(valkey: redis.Redis) -> Job:
    return Job(valkey)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "worker.log"


def test_hints_become_results_and_sigterm_drains(valkey_server: Server, job: Job, log: Path) -> None:
    job.offer(*(make_batch(8, mb=mb) for mb in range(20)))
    with started_worker(valkey_server, log, sim=SimOptions(seconds=0.005, places=32)) as worker:
        presence = worker.presence()
        assert (presence["models"], presence["target"], presence["gpu"]) == ('["*"]', "40", "cpu0")
        assert int(presence["pid"]) == worker.process.pid
        worker.hint(*range(20), *range(20), n=8)
        expected = sorted(1000 * mb + i for mb in range(20) for i in range(8))
        wait_until(
            lambda: job.seqs() == expected, timeout_s=20, description="every result once, in spite of doubled hints"
        )
        wait_until(lambda: worker.waiting_hints() == 0, timeout_s=10, description="every hint is taken")
        worker.process.send_signal(signal.SIGTERM)
        assert worker.end() == 0
        assert not worker.presence(), "who has left is not live"
    names = [event["event"] for event in worker.events()]
    for name in ("worker_started", "model_loading", "model_loaded", "worker_ready", "worker_drained", "worker_stopped"):
        assert name in names
    finished = [event for event in worker.events() if event["event"] == "request_finished"]
    assert len(finished) == 160
    assert {"job", "seq", "line", "start", "end", "status", "error", "attempts"} <= finished[0].keys()
    assert "row 0 0" not in log.read_text(), "no prompt text in logs"


def test_the_gate_holds_the_target_under_a_flood(valkey_server: Server, job: Job, log: Path) -> None:
    """60 micro-batches of 8 wait; the target is 20: never more than one micro-batch beyond it is taken."""
    job.offer(*(make_batch(8, mb=mb, tokens=[LONG] * 8) for mb in range(60)))
    with started_worker(valkey_server, log, sim=SimOptions(places=16)) as worker:
        worker.hint(*range(60))
        wait_until(lambda: held(job) == 3, timeout_s=10, description="20 requests in flight need three micro-batches")
        wait_until(lambda: worker.presence()["in_flight"] == "24", timeout_s=10, description="so says its heartbeat")
        assert held(job) == 3
        assert worker.waiting_hints() == 57


def held(job: Job) -> int:
    return sum(seen.st == "HELD" for seen in job.claims.look(JOB).micro_batches.values())


def test_early_finishers_make_room(valkey_server: Server, job: Job, log: Path) -> None:
    """Each micro-batch has one long request: taken one by one, or by places of micro-batches, this could not go on."""
    job.offer(*(make_batch(8, mb=mb, tokens=[LONG, *[1] * 7]) for mb in range(8)))
    with started_worker(valkey_server, log, sim=SimOptions(seconds=0.005, places=16)) as worker:
        worker.hint(*range(8))
        wait_until(lambda: len(job.seqs()) == 56, timeout_s=15, description="the seven short ones of each are out")
        assert held(job) == 8


@pytest.mark.parametrize("signals", [[signal.SIGTERM], [signal.SIGINT, signal.SIGINT]])
def test_the_rest_is_handed_back(valkey_server: Server, job: Job, log: Path, signals: list[signal.Signals]) -> None:
    drain_s = "1" if len(signals) == 1 else "600"
    job.offer(make_batch(8, tokens=[1, *[LONG] * 7]), make_batch(8, mb=1))
    sim = SimOptions(places=4)
    with started_worker(valkey_server, log, sim=sim, BAKEHOUSE_DRAIN_TIMEOUT_S=drain_s) as worker:
        worker.hint(0)
        wait_until(lambda: job.seqs() == [0], timeout_s=10, description="one result is out")
        worker.hint(1)
        worker.process.send_signal(signals[0])
        wait_until(lambda: worker.presence().get("state") == "draining", timeout_s=5, description="it drains")
        for signum in signals[1:]:
            worker.process.send_signal(signum)
        assert worker.end() == (0 if len(signals) == 1 else 130)
        assert (job.stage(0), job.stage(1)) == ("READY", "READY")
        assert worker.waiting_hints() == 2
        assert int(str(worker.client.llen(keys.queue("*")))) >= 1, "what was held goes before the whole window"
    assert "Traceback" not in log.read_text()
    with started_worker(valkey_server, log, sim=SimOptions(seconds=0, places=16)):
        wait_until(lambda: len(job.seqs()) == 16, timeout_s=20, description="the next worker does the rest")


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Server]:
    """A server to be killed."""
    server = Server(VALKEY, tmp_path / "valkey", "--appendfsync", "always").start()
    yield server
    server.stop()


def test_a_worker_outlives_redis(own_server: Server, log: Path) -> None:
    job = Job(own_server.client())
    job.offer(make_batch(8, tokens=[1, *[100] * 7]), make_batch(8, mb=1))
    with started_worker(own_server, log, sim=SimOptions(seconds=0.01, places=8), BAKEHOUSE_RENEW_S="1") as worker:
        worker.hint(0)
        wait_until(lambda: job.seqs() == [0], timeout_s=10, description="one result is out")
        own_server.kill()
        wait_until(
            lambda: "redis_lost" in [event["event"] for event in worker.events()],
            timeout_s=10,
            description="it misses Redis",
        )
        own_server.start()
        wait_until(lambda: job.stage() == "FULL", timeout_s=20, description="what ran is published")
        worker.hint(1)
        wait_until(lambda: job.stage(1) == "FULL", timeout_s=20, description="and it takes hints again")
        assert sorted(set(job.seqs())) == job.seqs(), "nothing was published twice"
        worker.process.send_signal(signal.SIGTERM)
        assert worker.end() == 0


def test_a_drain_without_redis_ends_in_time_and_says_so(own_server: Server, log: Path) -> None:
    job = Job(own_server.client())
    job.offer(make_batch(8, tokens=[LONG] * 8))
    with started_worker(own_server, log, sim=SimOptions(), BAKEHOUSE_DRAIN_TIMEOUT_S="1") as worker:
        worker.hint(0)
        wait_until(lambda: job.stage() == "HELD", timeout_s=10, description="it holds the micro-batch")
        own_server.kill()
        worker.process.send_signal(signal.SIGTERM)
        assert worker.end(timeout_s=15) == 3


def test_a_hung_engine_ends_its_worker(valkey_server: Server, job: Job, log: Path) -> None:
    job.offer(make_batch(2, mb=7))
    sim = SimOptions(patterns=("hang=row 7 1",))
    with started_worker(valkey_server, log, sim=sim, BAKEHOUSE_HANG_S="2") as worker:
        worker.hint(7, n=2)
        assert worker.end() == 70
        assert worker.events()[-1]["event"] == "engine_hung"
        assert "Thread 0x" in log.read_text(), "and where each thread stood"
        assert job.stage(7) == "HELD", "the janitor takes it, by the certificate"


def test_a_worker_says_for_how_long_it_has_been_idle(valkey_server: Server, job: Job, log: Path) -> None:
    """Its first token makes a beat too, so the work that is told at once is its second."""
    job.offer(make_batch(1), make_batch(1, mb=1, tokens=[LONG]))
    with started_worker(valkey_server, log, sim=SimOptions(), BAKEHOUSE_PRESENCE_S="10") as worker:
        worker.hint(0, n=1)
        wait_until(lambda: job.seqs() == [0], timeout_s=20, description="its first result")
        wait_until(lambda: int(worker.presence()["idle_s"]) >= 2, timeout_s=40, description="it says so")
        worker.hint(1, n=1)
        wait_until(lambda: job.stage(1) == "HELD", timeout_s=10, description="it holds the micro-batch")
        wait_until(lambda: worker.presence()["idle_s"] == "0", timeout_s=4, description="before its next beat is due")


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (WorkerOptions(engine="vllm", model=None), 78),
        (WorkerOptions(engine="vllm", model="/nowhere/at/all"), 78),
        (WorkerOptions(engine="sim", sim=SimOptions(patterns=("nonsense",))), 78),
    ],
)
def test_a_start_that_can_never_succeed(
    valkey_server: Server, job: Job, log: Path, options: WorkerOptions, code: int
) -> None:
    env = environment(BAKEHOUSE_REDIS_URL=valkey_server.url, **options.to_environment())
    with log.open("wb") as output:
        process = subprocess.run(
            [sys.executable, "-P", "-m", "worker.app"], env=env, stderr=output, timeout=60, check=False
        )
    assert process.returncode == code
    assert not valkey_server.client().exists(keys.worker("unsupervised"))


def test_celerys_own_tools_see_the_worker(valkey_server: Server, job: Job, log: Path) -> None:
    with started_worker(valkey_server, log, sim=SimOptions()):
        ping = subprocess.run(
            [sys.executable, "-m", "celery", "-A", "worker.app", "inspect", "ping"],
            env=environment(BAKEHOUSE_REDIS_URL=valkey_server.url),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            cwd=os.path.dirname(log),
        )
    assert ping.returncode == 0, ping.stderr
    assert NAME in ping.stdout
