"""What `/healthz` and `/readyz` of real workers and of a collector's loop say while things go well, and when not."""

import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from common.exposition import serve
from common.settings import Settings
from producer.endurance import Endurance
from producer.job_directory import JobDirectory
from producer.job_spec import JobSpec
from producer.pulse import Pulse, all_ready, all_well
from tests.collecting import Bench, Running, write_input
from tests.prometheus_server import free_port
from tests.scraping import get, probes, value
from tests.servers import Server
from tests.waiting import wait_until
from tests.worker_parts import Job, make_batch
from tests.worker_process import started_worker
from worker.options import SimOptions

LONG = 10_000


def test_values_move_with_the_work(valkey: redis.Redis, valkey_server: Server, tmp_path: Path) -> None:
    job, port = Job(valkey), free_port()
    job.offer(*(make_batch(8, mb=mb, tokens=[3] * 8) for mb in range(4)))
    sim = SimOptions(seconds=0.005, places=32)
    with started_worker(valkey_server, tmp_path / "log", sim=sim, BAKEHOUSE_METRICS_PORT=str(port)) as worker:
        assert probes(port) == (200, 200)
        assert worker.presence()["metrics"] == f"127.0.0.1:{port}"
        assert (value(port, "bakehouse_requests_target"), value(port, "bakehouse_results")) == (40, 0)
        worker.hint(*range(4))
        wait_until(lambda: len(job.seqs()) == 32, timeout_s=20, description="every result")
        wait_until(
            lambda: value(port, "bakehouse_results", outcome="ok") == 32, timeout_s=20, description="and counted"
        )
        assert value(port, "bakehouse_tokens", direction="completion", outcome="ok") == 32 * 3
        assert value(port, "bakehouse_claims", answer="GO") == 4
        assert value(port, "bakehouse_requests_in_flight") == value(port, "bakehouse_retries") == 0
        request_seconds = [line for line in get(port, "/metrics")[1].splitlines() if "request_seconds_count" in line]
        assert request_seconds == ["bakehouse_request_seconds_count 32.0"]


def test_a_worker_that_drains_is_well_and_not_ready(valkey: redis.Redis, valkey_server: Server, tmp_path: Path) -> None:
    job, port = Job(valkey), free_port()
    job.offer(make_batch(1, tokens=[LONG]))
    with started_worker(valkey_server, tmp_path / "log", sim=SimOptions(), BAKEHOUSE_METRICS_PORT=str(port)) as worker:
        worker.hint(0, n=1)
        wait_until(lambda: job.stage() == "HELD", timeout_s=30, description="it works")
        worker.process.send_signal(signal.SIGTERM)
        wait_until(lambda: probes(port) == (200, 503), timeout_s=20, description="it takes no more")
        assert value(port, "bakehouse_drains") == 1


def test_a_worker_without_redis_is_well_and_not_ready(own_server: Server, tmp_path: Path) -> None:
    port = free_port()
    with started_worker(own_server, tmp_path / "log", sim=SimOptions(), BAKEHOUSE_METRICS_PORT=str(port)):
        own_server.kill()
        wait_until(lambda: probes(port) == (200, 503), timeout_s=30, description="it misses Redis")
        own_server.start()
        wait_until(lambda: probes(port) == (200, 200), timeout_s=30, description="it works again")


def test_an_engine_that_makes_no_step_is_seen_before_its_worker_is_ended(
    valkey: redis.Redis, valkey_server: Server, tmp_path: Path
) -> None:
    job, port = Job(valkey), free_port()
    job.offer(make_batch(2, mb=7))
    sim = SimOptions(patterns=("hang=row 7 1",))
    with started_worker(
        valkey_server, tmp_path / "log", sim=sim, BAKEHOUSE_METRICS_PORT=str(port), BAKEHOUSE_HANG_S="16"
    ) as worker:
        assert probes(port) == (200, 200)
        worker.hint(7, n=2)
        wait_until(lambda: probes(port) == (503, 200), timeout_s=30, description="the engine stands still")
        assert worker.process.poll() is None
        assert worker.end(timeout_s=60) == 70


def test_a_taken_port_ends_a_worker_before_its_engine_starts(
    valkey: redis.Redis, valkey_server: Server, tmp_path: Path
) -> None:
    port = serve(0, host="127.0.0.1", healthy=lambda: True, ready=lambda: True)
    log = tmp_path / "log"
    with (
        pytest.raises(AssertionError, match="give another metrics port"),
        started_worker(valkey_server, log, sim=SimOptions(), BAKEHOUSE_METRICS_PORT=str(port)),
    ):
        pass
    assert "model_loading" not in log.read_text()


@pytest.fixture
def port() -> int:
    """What a process that owns jobs serves."""
    return serve(0, host="127.0.0.1", healthy=all_well, ready=all_ready)


class Patient:
    """A collector that waits for ever."""

    def check_stop(self) -> None:
        """Never told to end."""

    def wait_for(self, reason: str | None, now_s: float) -> None:
        """Without end."""

    def look_again(self, *, full: bool) -> None:
        """Nothing to look at."""


@pytest.fixture
def endurance(tmp_path: Path) -> Iterator[Endurance]:
    """A collector's, whose steps may take a fifth of a second."""
    settings = Settings()
    source = str(write_input(tmp_path / "in.jsonl", 1))
    spec = JobSpec.from_settings(settings, input=source, output=None, model=None, redis="given")
    directory = JobDirectory.create(tmp_path / "jobs", spec, settings=settings)
    with Endurance(directory, settings=settings, sufferer=Patient(), pulse=Pulse(still_s=0.2)) as endurance:
        yield endurance


def test_a_loop_that_stands_in_a_step_is_not_well(endurance: Endurance, port: int) -> None:
    assert probes(port) == (200, 503), "it owns nothing yet"
    endurance.bear(lambda: None)
    assert probes(port) == (200, 200)
    go_on = threading.Event()
    stuck = threading.Thread(target=endurance.bear, args=(go_on.wait,))
    stuck.start()
    wait_until(lambda: probes(port) == (503, 200), timeout_s=20, description="a step that does not end")
    go_on.set()
    stuck.join()
    assert probes(port) == (200, 200)


def test_a_collector_is_ready_while_it_owns_its_job_and_redis_answers(own_server: Server, tmp_path: Path) -> None:
    port = serve(0, host="127.0.0.1", healthy=all_well, ready=all_ready)
    assert probes(port) == (200, 503), "no job yet"
    bench = Bench(tmp_path, own_server, write_input(tmp_path / "in.jsonl", 20))
    running = Running(bench.collector())
    wait_until(lambda: probes(port) == (200, 200), timeout_s=30, description="it owns its job")
    own_server.kill()
    wait_until(lambda: probes(port) == (200, 503), timeout_s=30, description="it misses Redis, and gets on")
    own_server.start()
    wait_until(lambda: probes(port) == (200, 200), timeout_s=20, description="it has its job again")
    running.collector.stop()
    wait_until(lambda: not running.alive(), timeout_s=30, description="it ends")
    assert probes(port) == (200, 503)
