"""The metrics port of a fresh process: every name, every label value at 0, and the two probes."""

import subprocess
import sys
import urllib.request
from collections.abc import Iterator

import psutil
import pytest
from prometheus_client import REGISTRY, Gauge
from prometheus_client.core import Metric

from common.errors import ErrorKind, RefusedError
from common.exposition import OUTCOMES, serve
from tests import scraping

SERVING = """
import sys, {module}
from common.exposition import serve
flags = {{"healthy": True, "ready": True}}
print(serve(0, host="127.0.0.1", healthy=lambda: flags["healthy"], ready=lambda: flags["ready"]), flush=True)
for line in sys.stdin:
    flags[line.strip()] = False
    print("set", flush=True)
"""
WORKER = {
    "bakehouse_requests_in_flight": ("gauge", set()),
    "bakehouse_requests_target": ("gauge", set()),
    "bakehouse_holds": ("gauge", set()),
    "bakehouse_results": ("counter", {"outcome"}),
    "bakehouse_tokens": ("counter", {"direction", "outcome"}),
    "bakehouse_request_seconds": ("histogram", set()),
    "bakehouse_queue_seconds": ("histogram", set()),
    "bakehouse_publish_seconds": ("histogram", set()),
    "bakehouse_retries": ("counter", {"kind"}),
    "bakehouse_claims": ("counter", {"answer"}),
    "bakehouse_drains": ("counter", set()),
    "bakehouse_engine_restarts": ("counter", {"cause"}),
}
PRODUCER = {
    "bakehouse_backlog_requests": ("gauge", set()),
    "bakehouse_window_requests": ("gauge", set()),
    "bakehouse_window_limit_requests": ("gauge", set()),
    "bakehouse_window_bytes": ("gauge", set()),
    "bakehouse_journaled_results": ("counter", {"outcome"}),
    "bakehouse_redeliveries": ("counter", set()),
    "bakehouse_poison": ("counter", set()),
    "bakehouse_duplicates": ("counter", set()),
    "bakehouse_frontier_lag_requests": ("gauge", set()),
    "bakehouse_journal_seconds": ("histogram", set()),
    "bakehouse_hints": ("counter", {"reason"}),
    "bakehouse_done_requests": ("gauge", set()),
    "bakehouse_job_tokens": ("gauge", {"direction"}),
    "bakehouse_bottleneck_jobs": ("gauge", {"name"}),
}
HOST = {
    "bakehouse_host_cpu_seconds": ("counter", {"mode"}),
    "bakehouse_host_memory_used_bytes": ("gauge", set()),
    "bakehouse_host_memory_total_bytes": ("gauge", set()),
    "bakehouse_host_disk_bytes": ("counter", {"direction"}),
    "bakehouse_host_network_bytes": ("counter", {"direction"}),
}


class Serving:
    """A fresh process that has imported one package's metrics and serves them."""

    def __init__(self, module: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", SERVING.format(module=module)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    def clear(self, flag: str) -> None:
        """Make one of the two probes say no."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(flag + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "set\n"

    def get(self, path: str) -> tuple[int, str]:
        """Status and body of GET `path`."""
        return scraping.get(self.port, path)

    def families(self) -> dict[str, Metric]:
        """Our metrics by name."""
        return scraping.families(self.port)

    def stop(self) -> None:
        """End it."""
        self.process.kill()
        self.process.communicate()


@pytest.fixture(params=["worker.metrics", "producer.metrics"])
def serving(request: pytest.FixtureRequest) -> Iterator[Serving]:
    """Each side's port in turn."""
    process = Serving(request.param)
    yield process
    process.stop()


def test_every_metric_has_its_name_type_and_labels(serving: Serving) -> None:
    families = serving.families()
    expected = WORKER if "bakehouse_holds" in families else PRODUCER
    found = {
        name: (family.type, {label for sample in family.samples for label in sample.labels} - {"le"})
        for name, family in families.items()
    }
    assert found == expected | HOST


def test_every_series_starts_at_zero(serving: Serving) -> None:
    """All but the host's, which counts since its own start."""
    families = {name: family for name, family in serving.families().items() if name not in HOST}
    samples = [sample for family in families.values() for sample in family.samples]
    assert samples
    assert [sample for sample in samples if sample.value != 0] == []
    assert not [sample.name for sample in samples if sample.name.endswith("_created")]


def test_every_metric_says_what_to_do(serving: Serving) -> None:
    families = serving.families()
    assert families
    assert [name for name, family in families.items() if "do this: " not in family.documentation] == []


def test_outcomes_are_ok_and_every_error_kind(serving: Serving) -> None:
    families = serving.families()
    family = families.get("bakehouse_results") or families["bakehouse_journaled_results"]
    assert {sample.labels["outcome"] for sample in family.samples} == {"ok", *ErrorKind} == set(OUTCOMES)


def test_probes_follow_the_process(serving: Serving) -> None:
    assert serving.get("/healthz")[0] == 200
    assert serving.get("/readyz")[0] == 200
    serving.clear("ready")
    assert (serving.get("/healthz")[0], serving.get("/readyz")[0]) == (200, 503)
    serving.clear("healthy")
    assert serving.get("/healthz")[0] == 503
    assert serving.get("/elsewhere")[0] == 404
    assert serving.get("/metrics")[0] == 200


def test_the_host_is_shown_as_the_kernel_has_it(serving: Serving) -> None:
    families = serving.families()
    (total,) = families["bakehouse_host_memory_total_bytes"].samples
    (used,) = families["bakehouse_host_memory_used_bytes"].samples
    assert total.value == psutil.virtual_memory().total
    assert 0 < used.value < total.value
    seconds = {sample.labels["mode"]: sample.value for sample in families["bakehouse_host_cpu_seconds"].samples}
    assert seconds.keys() == {"user", "system", "iowait", "steal", "idle"}
    busy_s = psutil.cpu_times().user + psutil.cpu_times().nice
    assert 0 < seconds["user"] <= busy_s


def test_a_taken_port_is_refused(serving: Serving) -> None:
    with pytest.raises(RefusedError, match="another metrics port"):
        serve(serving.port, host="127.0.0.1", healthy=lambda: True, ready=lambda: True)


def test_names_of_the_engine_reach_prometheus_as_they_are() -> None:
    """Prometheus asks for OpenMetrics, in which the client library writes `vllm_` for `vllm:`."""
    gauge = Gauge("vllm:named_by_the_engine", "For this test.")
    try:
        port = serve(0, host="127.0.0.1", healthy=lambda: True, ready=lambda: True)
        asked = {"Accept": "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"}
        request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers=asked)
        with urllib.request.urlopen(request, timeout=10) as answer:
            assert "\nvllm:named_by_the_engine 0.0\n" in answer.read().decode()
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    finally:
        REGISTRY.unregister(gauge)
