"""A worker's restarts as its next lives show them, on the same port; and the real engine's own metrics beside ours."""

import os
import signal
from pathlib import Path

import pytest
import redis

from tests.metric_families import families_of
from tests.processes import SMALL_MODEL, VLLM_FLAGS, live_workers, started, started_worker, worker_command
from tests.prometheus_server import free_port
from tests.scraping import families, probes, value
from tests.servers import Server
from tests.waiting import wait_until
from worker import metrics

RESTARTS = "bakehouse_engine_restarts"


@pytest.mark.kill
def test_restarts_are_counted_by_cause_on_the_same_port(
    valkey: redis.Redis, valkey_server: Server, tmp_path: Path
) -> None:
    port = free_port()
    log = tmp_path / "worker.log"
    with started_worker(valkey_server, "--engine", "sim", "--metrics-port", port, log=log):
        assert value(port, RESTARTS) == 0
        for signum, outside, own in ((signal.SIGKILL, 1, 0), (signal.SIGKILL, 2, 0), (signal.SIGABRT, 2, 1)):
            (name,) = live_workers(valkey_server)
            os.kill(int(valkey.hget(name, "pid") or 0), signum)
            wait_until(
                lambda name=name: set(live_workers(valkey_server)) - {name},  # type: ignore[misc]
                timeout_s=30,
                description="the next life is ready",
            )
            valkey.delete(name)
            shown = {cause: value(port, RESTARTS, cause=cause) for cause in ("outside", "self", "left")}
            assert shown == {"outside": outside, "self": own, "left": 0}


@pytest.mark.engine
@pytest.mark.timeout(600)
def test_the_real_engine_shows_itself_beside_us(valkey: redis.Redis, valkey_server: Server, tmp_path: Path) -> None:
    port = free_port()
    command = ("start", "--redis-url", valkey_server.url, "--model", SMALL_MODEL, "--metrics-port", port, *VLLM_FLAGS)
    with started(worker_command(*command), log=tmp_path / "worker.log"):
        wait_until(lambda: probes(port) == (200, 503), timeout_s=60, description="the engine starts, and is not ready")
        assert not live_workers(valkey_server)
        wait_until(lambda: probes(port) == (200, 200), timeout_s=240, description="it is")
        wait_until(lambda: live_workers(valkey_server), timeout_s=20, description="its heartbeat says so too")
        (name,) = [str(name) for name in live_workers(valkey_server)]
        assert valkey.hget(name, "metrics") == f"127.0.0.1:{port}".encode()
        ours = {family.name.removesuffix("_total") for family in families_of(metrics)}
        assert ours <= families(port).keys()
        engines = families(port, prefix="vllm:")
        for needed in ("num_requests_running", "kv_cache_usage_perc", "generation_tokens", "num_preemptions"):
            assert f"vllm:{needed}" in engines, sorted(engines)
