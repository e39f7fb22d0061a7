"""The engine's dashboard, from a worker with the real vLLM: every query gives data, and what a load moves has moved."""

import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.engine_thread import TINY_FLAGS
from tests.dashboard_pictures import PICTURES, draw
from tests.dashboards import Dashboard, Query
from tests.models import tiny_model
from tests.processes import live_workers, producer_command, run_producer, started, worker_command
from tests.prometheus_server import Prometheus, free_port
from tests.servers import Server
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.dashboards,
    pytest.mark.engine,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not shutil.which("prometheus"), reason="prometheus is not installed"),
]
ROWS, TOKENS = 300, 96
SHARED = "You are a baker who answers every question about bread in one short sentence, whoever asks. " * 3
READY_S = 400.0
MOVED = {
    *("KV cache use", "Prefix hits", "Running", "In flight and target", "Tokens per second"),
    *("Seconds to the first token", "Seconds between tokens", "Requests ended per second"),
}


def write_requests(path: Path) -> Path:
    """Prompts that begin alike, with answers of one length."""
    rows = [
        {"custom_id": f"r{n}", "prompt": f"{SHARED} {n}", "max_tokens": TOKENS, "ignore_eos": True} for n in range(ROWS)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def given(valkey_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Query, list[float]]]:
    """What each query gave while a job ran on a real engine."""
    valkey_server.client().flushall(asynchronous=False)
    tmp, port, own = tmp_path_factory.mktemp("engine"), free_port(), free_port()
    where = ("--redis-url", valkey_server.url)
    model = ("--model", tiny_model(), "--served-model-name", "tiny")
    worker = worker_command("start", *where, *model, "--metrics-port", own, "--", *TINY_FLAGS)
    dashboard = Dashboard("engine")
    with (
        started(producer_command("targets", *where, "--metrics-port", port), log=tmp / "targets.log"),
        started(worker, log=tmp / "worker.log"),
    ):
        prometheus = Prometheus(tmp_path_factory.mktemp("prometheus"), f"http://127.0.0.1:{port}/targets")
        try:
            wait_until(lambda: live_workers(valkey_server), timeout_s=READY_S, description="the engine is up")
            wait_until(lambda: "worker" in prometheus.up(), timeout_s=60, description="it is scraped")
            since = time.time()
            places = ("-o", tmp / "out.jsonl", "--jobs", tmp / "jobs")
            ended = run_producer("run", write_requests(tmp / "in.jsonl"), *places, *where, timeout_s=600)
            assert ended.returncode == 0, ended.stderr
            until = time.time()
            if folder := os.environ.get(PICTURES):
                draw(dashboard, prometheus, since=since, until=until, into=Path(folder) / "dashboard-engine.png")
            yield dashboard.all_values(prometheus, since=since, until=until)
        finally:
            prometheus.stop()


def test_every_query_gives_data(given: dict[Query, list[float]]) -> None:
    assert [(query.panel, query.legend) for query, values in given.items() if not values] == []


def test_a_load_moves_what_it_should(given: dict[Query, list[float]]) -> None:
    moved = {query.panel for query, values in given.items() if max(values, default=0) > 0}
    assert moved >= MOVED
