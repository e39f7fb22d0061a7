"""The whole card: a real Prometheus scrapes worker and collector in a real job, and every panel gets its data.

No list names them: `producer targets` tells Prometheus of each as it joins.
"""

import json
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.dashboards import Dashboard
from tests.processes import producer_command, read_results, started, started_worker
from tests.prometheus_server import Prometheus, free_port
from tests.servers import Server
from tests.waiting import wait_until

ROWS = 400
NAMES = ("fleet", "job", "redis")
NOT_ZERO = {
    *("Backlog", "Live workers", "Results per second", "Failure share now", "Bottlenecks over time"),
    *("Results per second by outcome", "Tokens per second", "Request seconds", "Failure share"),
    *("Retries per second by kind", "In flight and target", "Holds and drains", "Claims per second by answer"),
    *(
        "Host processors",
        "Host memory",
        "Progress",
        "Done and backlog",
        "Failures by kind",
        "Tokens so far",
        "GPU time",
    ),
    *("Window requests", "Window bytes", "Hints per second by reason", "Journal seconds", "Redis answers", "Memory"),
    *("Jobs by collector", "Publish seconds"),
}
"""Panels that must show more than zeros in a job with a flaky and a failing request."""
NOT_HERE = {
    *("GPU use", "Peak GPU memory", "GPU power", "How full each part is"),
    *("Deadline margin", "Margin over time", "End against deadline", "Cost", "Cost so far", "Memory share", "Memory"),
}
"""Panels that lack something where there is no GPU, no deadline, no price and no maxmemory: no data, and no error."""

needs_prometheus = pytest.mark.skipif(
    not shutil.which("prometheus"), reason="prometheus is not installed (Debian: apt-get install prometheus)"
)


@dataclass
class Seen:
    """What Prometheus saw of one job."""

    prometheus: Prometheus
    since: float
    until: float


def write_requests(path: Path) -> None:
    """Requests of some tokens each; every fiftieth fails once, two fail for good."""
    words = {7: "broken", 300: "broken", **dict.fromkeys(range(20, ROWS, 50), "flaky")}
    lines = [
        {
            "custom_id": f"r{n}",
            "messages": [{"role": "user", "content": f"{words.get(n, 'plain')} {n}"}],
            "max_tokens": 6,
        }
        for n in range(ROWS)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture(scope="module")
def seen(valkey_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    """A job of some 15 s on a simulated worker, with everything scraped each second until it has ended."""
    valkey_server.client().flushall(asynchronous=False)
    tmp = tmp_path_factory.mktemp("dashboard")
    write_requests(tmp / "in.jsonl")
    where = ("--redis-url", valkey_server.url)
    simulated = ("--engine", "sim", "--sim-seconds", "0.03", "--sim-places", "8", "--sim-pattern", "fail-once=flaky")
    worker = (*simulated, "--sim-pattern", "fail=broken", "--metrics-port", free_port())
    run = ("run", tmp / "in.jsonl", "-o", tmp / "out.jsonl", *where, "--jobs", tmp / "jobs")
    port = free_port()
    with started(producer_command("targets", *where, "--metrics-port", port), log=tmp / "targets.log"):
        prometheus = Prometheus(tmp_path_factory.mktemp("prometheus"), f"http://127.0.0.1:{port}/targets")
        try:
            wait_until(lambda: prometheus.up() == {"targets"}, timeout_s=30, description="nobody else is there yet")
            with started_worker(valkey_server, *worker, log=tmp / "worker.log"):
                wait_until(
                    lambda: prometheus.up() == {"targets", "worker"}, timeout_s=20, description="the worker is scraped"
                )
                since = time.time()
                command = producer_command(*run, "--max-concurrency", 128, "--metrics-port", 0)
                with started(command, log=tmp / "run.log") as job:
                    wait_until(
                        lambda: job.poll() is not None or prometheus.up() == {"targets", "worker", "collector"},
                        timeout_s=20,
                        description=f"both are scraped; the job's log: {tmp / 'run.log'}",
                    )
                    assert job.wait(120) == 1, (tmp / "run.log").read_text()[-2000:]
                assert len(read_results(tmp / "out.jsonl")) == ROWS
                yield Seen(prometheus, since, time.time())
        finally:
            prometheus.stop()


@needs_prometheus
@pytest.mark.parametrize("name", NAMES)
def test_every_query_gives_data(seen: Seen, name: str) -> None:
    given = Dashboard(name).all_values(seen.prometheus, since=seen.since, until=seen.until)
    assert {query.panel for query, values in given.items() if not values} - NOT_HERE == set()
    moving = {query.panel for query, values in given.items() if any(value > 0 for value in values)}
    assert {query.panel for query in given} & NOT_ZERO - moving == set()


@needs_prometheus
def test_what_was_counted_is_what_was_done(seen: Seen) -> None:
    """The last scrape is up to a second old, so the job's end may be missing from the worker's side only."""

    def last(query: str) -> float:
        return seen.prometheus.values(query, since=seen.since, until=seen.until)[-1]

    wait_until(
        lambda: (
            float(seen.prometheus.ask("query", query="sum(bakehouse_results_total)")["result"][0]["value"][1]) == ROWS
        ),
        timeout_s=30,
        description="the worker's counts reach the number of rows",
    )
    assert 0.9 * ROWS <= last("sum(bakehouse_journaled_results_total)") <= ROWS
    assert last("max(bakehouse_live_workers)") == 1
    assert last("bakehouse_requests_target") == 10
    assert max(seen.prometheus.values("bakehouse_requests_in_flight", since=seen.since, until=seen.until)) <= 10 + 32
    backlog = seen.prometheus.values("bakehouse_backlog_requests", since=seen.since, until=seen.until)
    assert 0.5 * ROWS < max(backlog) <= 1.1 * ROWS
    assert min(backlog) < 0.5 * ROWS
    assert seen.prometheus.values("sum(bakehouse_retries_total)", since=seen.since, until=seen.until)[-1] >= 8


@needs_prometheus
def test_every_rule_can_be_evaluated(seen: Seen) -> None:
    rules = [rule for group in seen.prometheus.ask("rules")["groups"] for rule in group["rules"]]
    assert len(rules) >= 10
    assert {rule["name"]: rule["lastError"] for rule in rules if rule["health"] != "ok"} == {}
    assert [rule["name"] for rule in rules if rule.get("state") == "firing"] == []
