"""Spans of real workers: one a micro-batch, told to a real receiver of OTLP; none, and nothing imported, otherwise."""

import json
import os
import re
import signal
import time
from pathlib import Path

from tests.flower_pages import ROWS, SECRET, TOKENS, write_rows
from tests.processes import run_producer, started_worker
from tests.prometheus_server import free_port
from tests.servers import Server
from tests.span_collector import SpanCollector, facts, span_collector
from tests.waiting import wait_until

JOB = "traced"
ENGINE = ("--engine", "sim", "--sim-seconds", "0.01", "--sim-places", "8", "--sim-pattern", f"fail-once={SECRET} 7")
"""Of the rows, 7, 70 to 79 and so on fail once and are tried again."""
FAILED_ONCE = sum(str(n).startswith("7") for n in range(ROWS))


def run_job(server: Server, folder: Path) -> None:
    """A job of rows with a secret in each prompt."""
    source = write_rows(folder / "in.jsonl", ROWS)
    where = ("--redis-url", server.url, "--jobs", folder / "jobs", "--batch-size", 16, "--job-id", JOB)
    ended = run_producer("run", source, "-o", folder / "out.jsonl", *where)
    assert ended.returncode == 0, ended.stderr[-2000:]


def traced(server: Server, folder: Path, **variables: str) -> SpanCollector:
    """What a collector of spans has been told of one job, once the worker has ended."""
    knobs = {"BAKEHOUSE_RETRY_WAIT_S": "0.05", **variables}
    with span_collector() as collector:
        endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}
        with started_worker(server, *ENGINE, log=folder / "worker.log", **knobs, **endpoint):
            run_job(server, folder)
        return collector


def test_a_span_a_micro_batch_tells_its_requests_phases(own_server: Server, tmp_path: Path) -> None:
    collector = traced(own_server, tmp_path)
    spans = collector.spans()
    told = [facts(span.attributes) for span in spans]
    assert {span.name for span in spans} == {"micro_batch"}
    assert {one["job"] for one in told} == {JOB}
    assert len({one["mb"] for one in told}) == len(told)
    assert sum(one["n"] for one in told) == sum(one["results"] for one in told) == ROWS
    assert sum(one["completion_tokens"] for one in told) == ROWS * TOKENS
    assert sum(one["retries"] for one in told) == FAILED_ONCE
    assert {(one["outcome"], one["model"], one["delivery"], one["errors"]) for one in told} == {
        ("published", "simulated", 1, 0)
    }
    for span, one in zip(spans, told, strict=True):
        names = [event.name for event in span.events]
        assert (names[:2], names.count("request_answered")) == (["claimed", "first_attempt"], one["n"])
        assert names.count("request_retried") == one["retries"]
        assert names.index("run_ended") == len(names) - 1
        whole_s = (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9
        parts = (one["queue_s"], one["start_s"], one["engine_s"], one["publish_s"])
        assert min(parts) >= 0
        assert abs(whole_s - sum(parts)) < 0.1
    answered = [facts(event.attributes) for span in spans for event in span.events if event.name == "request_answered"]
    assert sorted(one["seq"] for one in answered) == list(range(ROWS))
    assert (
        sum(one["retry_wait_s"] > 0 for one in answered) == sum(one["attempts"] == 2 for one in answered) == FAILED_ONCE
    )
    assert {resource["service.name"] for resource in collector.resources()} == {"bakehouse-worker"}


def test_no_span_tells_a_prompt(own_server: Server, tmp_path: Path) -> None:
    collector = traced(own_server, tmp_path, OTEL_SERVICE_NAME="ovens", PYTHONPROFILEIMPORTTIME="1")
    assert "worker.spans" in of_spans(tmp_path / "worker.log")
    assert collector.raw
    assert [body for body in collector.raw if SECRET.encode() in body] == []
    assert {resource["service.name"] for resource in collector.resources()} == {"ovens"}


def test_nothing_of_it_is_imported_without_an_endpoint(own_server: Server, tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    with started_worker(own_server, *ENGINE, log=log, PYTHONPROFILEIMPORTTIME="1"):
        run_job(own_server, tmp_path)
    assert of_spans(log) == set()


def of_spans(log: Path) -> set[str]:
    """What a worker imported for spans alone: redis-py takes OpenTelemetry's metrics by itself where it finds them."""
    imported = set(re.findall(r"^import time:.*\| +(\S+)$", log.read_text(), re.M))
    assert "worker.tracing" in imported
    return {name for name in imported if re.match(r"worker\.spans|opentelemetry\.(exporter|sdk\.trace\.export)", name)}


def test_a_worker_without_the_package_works_and_says_so(own_server: Server, tmp_path: Path) -> None:
    package = tmp_path / "path" / "opentelemetry"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('there is none')\n")
    variables = {"PYTHONPATH": str(package.parent), "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
    log = tmp_path / "worker.log"
    with started_worker(own_server, *ENGINE, log=log, **variables):
        run_job(own_server, tmp_path)
    (refused,) = [json.loads(line) for line in log.read_text().splitlines() if '"tracing_refused"' in line]
    assert "bakehouse[tracing]" in refused["reason"]


def test_a_collector_that_is_away_costs_spans_alone(own_server: Server, tmp_path: Path) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    with started_worker(own_server, *ENGINE, log=tmp_path / "worker.log", OTEL_EXPORTER_OTLP_ENDPOINT=nobody) as node:
        run_job(own_server, tmp_path)
        began = time.monotonic()
        os.kill(node.pid, signal.SIGTERM)
        wait_until(lambda: node.poll() is not None, timeout_s=30, description="the worker ends")
        assert node.returncode == 0
        assert time.monotonic() - began < 15
