"""The whole card: a real Prometheus scrapes worker and collector in a real job, and every panel gets its data.

No list names them: `producer targets` tells Prometheus of each as it joins.
"""

import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.metric_families import all_families
from tests.processes import ROOT, producer_command, read_results, started, started_worker
from tests.prometheus_server import Dashboard, Prometheus, free_port
from tests.servers import Server
from tests.waiting import wait_until

DASHBOARD = ROOT / "grafana" / "dashboards" / "bakehouse.json"
ROWS = 400
CLIENTS_OWN = {"process_resident_memory_bytes", "process_cpu_seconds_total"}
NOT_ZERO = (
    *("Backlog", "Live workers", "Results per second", "Backlog and frontier lag", "In flight and target"),
    *("Results per second by outcome", "Tokens per second", "Request seconds", "Failure share"),
    *("Retries per second by kind", "Holds and drains", "Window bytes", "Claims per second by answer"),
    *("Hints per second by reason", "Results journaled per second", "Publish and journal seconds, p99"),
    *("Window requests", "Host processors", "Host memory"),
)
"""Panels that must show more than zeros in a job with a flaky and a failing request."""
NOT_HERE = {"GPU use", "GPU memory", "GPU power", "Deadline margin"}
"""Panels of what a worker without a GPU and a job without a deadline do not have: no data, and no error."""

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
            assert prometheus.up() == set(), "nobody is there yet"
            with started_worker(valkey_server, *worker, log=tmp / "worker.log"):
                wait_until(lambda: prometheus.up() == {"worker"}, timeout_s=20, description="the worker is scraped")
                since = time.time()
                command = producer_command(*run, "--max-concurrency", 128, "--metrics-port", 0)
                with started(command, log=tmp / "run.log") as job:
                    wait_until(
                        lambda: job.poll() is not None or prometheus.up() == {"worker", "collector"},
                        timeout_s=20,
                        description=f"both are scraped; the job's log: {tmp / 'run.log'}",
                    )
                    assert job.wait(120) == 1, (tmp / "run.log").read_text()[-2000:]
                assert len(read_results(tmp / "out.jsonl")) == ROWS
                yield Seen(prometheus, since, time.time())
        finally:
            prometheus.stop()


@needs_prometheus
def test_every_query_of_the_dashboard_gives_data(seen: Seen) -> None:
    dashboard = Dashboard(DASHBOARD)
    variables = dashboard.variables(seen.prometheus, since=seen.since)
    asked = [(title, dashboard.replaced(query, variables)) for title, query in dashboard.queries()]
    assert len(asked) >= len(dashboard.panels()) >= 20
    given = [(title, seen.prometheus.values(q, since=seen.since, until=seen.until)) for title, q in asked]
    assert {title for title, values in given if not values} == NOT_HERE
    flat = {
        title for title in NOT_ZERO if not any(value > 0 for name, values in given if name == title for value in values)
    }
    assert flat == set()


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
    assert last("bakehouse_live_workers") == 1
    assert last("bakehouse_requests_target") == 10
    assert max(seen.prometheus.values("bakehouse_requests_in_flight", since=seen.since, until=seen.until)) <= 10 + 32
    backlog = seen.prometheus.values("bakehouse_backlog_requests", since=seen.since, until=seen.until)
    assert 0.5 * ROWS < max(backlog) <= 1.1 * ROWS
    assert min(backlog) < 0.5 * ROWS
    assert seen.prometheus.values("sum(bakehouse_retries_total)", since=seen.since, until=seen.until)[-1] >= 8


@needs_prometheus
def test_every_alert_can_be_evaluated(seen: Seen) -> None:
    (group,) = seen.prometheus.ask("rules")["groups"]
    assert len(group["rules"]) >= 3
    assert {rule["name"]: rule["health"] for rule in group["rules"] if rule["health"] != "ok"} == {}
    assert all(rule["annotations"]["do"] for rule in group["rules"])
    assert [rule["name"] for rule in group["rules"] if rule["state"] == "firing"] == []


def names_in_code() -> set[str]:
    """Every series name that our metrics can have."""
    names = set()
    for family in all_families():
        is_histogram = family.type == "histogram"
        names |= {family.name} | {f"{family.name}_{part}" for part in ("bucket", "sum", "count") if is_histogram}
    return names


def test_every_metric_named_exists() -> None:
    files = [p for folder in ("grafana", "prometheus") for p in (ROOT / folder).rglob("*") if p.is_file()]
    assert len(files) >= 5
    named = {name for file in files for name in re.findall(r"\b(?:bakehouse|process)_\w+", file.read_text())}
    assert named - names_in_code() - CLIENTS_OWN == set()


def test_every_metric_has_a_panel() -> None:
    shown = " ".join(query for _, query in Dashboard(DASHBOARD).queries())
    assert [family.name for family in all_families() if family.name not in shown] == []


def test_panels_do_not_overlap_and_say_what_they_are() -> None:
    content = Dashboard(DASHBOARD)
    cells: list[tuple[int, int]] = []
    for panel in content.panels():
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        assert panel["description"]
        assert panel["datasource"]["uid"] == "bakehouse-prometheus"
        cells += [
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        ]
    assert len(cells) == len(set(cells))
    identifiers = [panel["id"] for panel in content.content["panels"]]
    assert len(identifiers) == len(set(identifiers))


@pytest.mark.parametrize(
    "check",
    [("check", "config", "prometheus.yml"), ("check", "config", "compose.yml"), ("test", "rules", "rules_test.yml")],
    ids=" ".join,
)
@pytest.mark.skipif(
    not shutil.which("promtool"), reason="promtool is not installed (Debian: apt-get install prometheus)"
)
def test_promtool(check: tuple[str, ...]) -> None:
    ended = subprocess.run(["promtool", *check], cwd=ROOT / "prometheus", capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
