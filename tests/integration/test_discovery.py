"""Who is told to Prometheus: each worker and collector with a metrics port, while it lives, and nobody else."""

import json
from pathlib import Path

import redis

from common import keys
from common.exposition import serve
from producer.discovery import ScrapeTarget, read_scrape_targets
from producer.heartbeat import Heartbeat
from producer.metrics_port import metrics_port, targets_in
from tests.collecting import FakeEngineWorker, quick_settings, write_input
from tests.processes import producer_command, run_producer, started
from tests.prometheus_server import free_port
from tests.scraping import families, get, probes, value
from tests.servers import Server
from tests.waiting import wait_until
from tests.worker_process import started_worker
from worker.options import SimOptions


def test_who_lives_is_told_and_who_left_is_not(valkey: redis.Redis, valkey_server: Server, tmp_path: Path) -> None:
    port = free_port()
    assert read_scrape_targets(valkey) == []
    with (
        FakeEngineWorker(valkey_server),  # has no port
        started_worker(valkey_server, tmp_path / "log", sim=SimOptions(), BAKEHOUSE_METRICS_PORT=str(port)) as worker,
        Heartbeat(valkey, metrics="10.0.0.7:9470", every_s=5),
    ):
        wait_until(lambda: len(read_scrape_targets(valkey)) == 2, timeout_s=20, description="both are there")
        host = worker.presence()["host"]
        expected = [ScrapeTarget("10.0.0.7:9470", "collector", host), ScrapeTarget(f"127.0.0.1:{port}", "worker", host)]
        assert read_scrape_targets(valkey) == expected
        printed = run_producer("targets", "--redis-url", valkey_server.url)
        assert printed.returncode == 0, printed.stderr
        assert json.loads(printed.stdout) == [
            {"targets": [address], "labels": {"role": role, "host": host}} for address, role, host in expected
        ]
        lifetimes = [valkey.ttl(key) for key in valkey.scan_iter(keys.COLLECTOR_PREFIX + "*")]
        assert [0 < int(str(left_s)) <= keys.WORKER_LIFETIME_S for left_s in lifetimes] == [True]
    assert [target.role for target in read_scrape_targets(valkey)] == ["worker"], (
        "a killed worker's heartbeat goes in 20 s"
    )


def test_a_collectors_port_tells_of_itself(valkey: redis.Redis, valkey_server: Server) -> None:
    port = free_port()
    with metrics_port(quick_settings(valkey_server, metrics_port=port)):
        wait_until(lambda: read_scrape_targets(valkey), timeout_s=20, description="it beats")
        status, body = get(port, "/targets")
        assert (status, [group["targets"] for group in json.loads(body)]) == (200, [[f"127.0.0.1:{port}"]])
    assert read_scrape_targets(valkey) == []


def test_who_tells_of_targets_alone_is_one_and_shows_redis(
    valkey: redis.Redis, valkey_server: Server, tmp_path: Path
) -> None:
    port = free_port()
    command = producer_command("targets", "--redis-url", valkey_server.url, "--metrics-port", port)
    with started(command, log=tmp_path / "log"):
        wait_until(lambda: read_scrape_targets(valkey), timeout_s=60, description="it beats")
        (group,) = json.loads(get(port, "/targets")[1])
        assert (group["targets"], group["labels"]["role"]) == ([f"127.0.0.1:{port}"], "targets")
        assert value(port, "bakehouse_redis_up") == 1
        assert "bakehouse_backlog_requests" not in families(port), "a 0 of its own would hide an owner that is not seen"
    assert read_scrape_targets(valkey) == []


def test_no_answer_is_not_an_empty_list(own_server: Server) -> None:
    """Prometheus keeps what it had: a Redis that is away takes no target with it."""
    port = serve(0, host="127.0.0.1", healthy=lambda: True, ready=lambda: True, targets=targets_in(own_server.url))
    assert get(port, "/targets") == (200, "[]")
    own_server.kill()
    assert get(port, "/targets") == (503, "")
    own_server.start()
    assert get(port, "/targets") == (200, "[]")


def test_a_run_of_its_own_tells_of_itself_and_of_its_worker(tmp_path: Path) -> None:
    port = free_port()
    source = write_input(tmp_path / "in.jsonl", 2000, model=None)
    where = ("-o", tmp_path / "out.jsonl", "--jobs", tmp_path / "jobs", "--metrics-port", port)
    slow = ("--engine", "sim", "--sim-seconds", "0.2", "--sim-places", "8")
    with started(producer_command("run", source, *where, *slow), log=tmp_path / "log"):

        def roles() -> list[str]:
            status, body = get(port, "/targets")
            return [group["labels"]["role"] for group in json.loads(body)] if status == 200 else []

        wait_until(lambda: roles() == ["collector", "worker"], timeout_s=90, description="both are told")
        wait_until(lambda: probes(port) == (200, 200), timeout_s=30, description="it owns its job")
        wait_until(lambda: probes(port + 1) == (200, 200), timeout_s=60, description="its worker works one port above")
        wait_until(
            lambda: value(port, "bakehouse_journaled_results") >= 1, timeout_s=30, description="results are journaled"
        )
        assert value(port, "bakehouse_live_workers") == 1
        assert 0 < value(port, "bakehouse_window_requests") <= value(port, "bakehouse_window_limit_requests")
        assert "bakehouse_deadline_margin_seconds" not in families(port), "no job has a deadline"
