"""A fleet of simulated workers under a real Prometheus with hurried rules, and what can be done to it.

All of it is real but the engines and NVML: a stand-in for the driver's library shows a GPU to one of the nodes.
"""

import json
import os
import signal
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self, cast

from tests.processes import live_workers, producer_command, started, worker_command
from tests.prometheus_server import Prometheus, free_port
from tests.servers import VALKEY, Server
from tests.stand_in_nvml import build_nvml
from tests.waiting import wait_until

PATIENCE_S = 90.0
MOST_BYTES = 256 << 20
STEP_S = 0.05
TOKENS = 6
"""Of most answers: 0.3 s each."""
LONG_TOKENS = 120
PER_S = 25
"""Lines that come each second; one worker runs about so many."""
SIMULATED = ("--engine", "sim", "--sim-seconds", STEP_S, "--sim-places", 8)
PATTERNS = ("--sim-pattern", "fail-once=flaky", "--sim-pattern", "fail=broken", "--sim-pattern", "abort=poison")
KNOBS = {"BAKEHOUSE_RETRY_WAIT_S": "0.3", "BAKEHOUSE_PRESENCE_S": "1", "BAKEHOUSE_GPU_HOURLY_COST": "2.5"}


class Lines:
    """An input that grows by plain lines while it is entered, and by others when they are added."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("a", encoding="utf-8", buffering=1)
        self._lock = threading.Lock()
        self._count = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._grow)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        self._file.close()

    def add(self, text: str, number: int, *, tokens: int = TOKENS) -> None:
        """`number` lines that say `text`."""
        with self._lock:
            for _ in range(number):
                said = f"{text} {self._count}"
                row = {"custom_id": f"r{self._count}", "prompt": said, "max_tokens": tokens}
                self._file.write(json.dumps(row) + "\n")
                self._count += 1

    def _grow(self) -> None:
        while not self._stopped.wait(1.0):
            self.add("plain", PER_S)


class WatchedFleet:
    """Redis, who tells of targets, Prometheus, two nodes of one worker each, and the collector of a growing input."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server = Server(VALKEY, folder / "valkey", "--maxmemory", str(MOST_BYTES))
        self.ports = {"gpu": free_port(), "plain": free_port()}
        self._open = ExitStack()
        self._nodes: dict[str, int] = {}
        self._killed: set[str] = set()

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            self.server.start()
            opened.callback(self.server.stop)
            port = free_port()
            tell = producer_command("targets", "--redis-url", self.server.url, "--metrics-port", port)
            opened.enter_context(started(tell, log=self.folder / "targets.log"))
            (self.folder / "prometheus").mkdir()
            discovery = f"http://127.0.0.1:{port}/targets"
            self.prometheus = Prometheus(self.folder / "prometheus", discovery, hurried=True)
            opened.callback(self.prometheus.stop)
            library = build_nvml(self.folder)
            self._nodes["gpu"] = self._start_node(opened, "gpu", "--gpus", 0, LD_LIBRARY_PATH=library)
            self._nodes["plain"] = self._start_node(opened, "plain", "--gpus", "none")
            wait_until(lambda: len(live_workers(self.server)) == 2, timeout_s=PATIENCE_S, description="both work")
            self.lines = Lines(self.folder / "growing.jsonl")
            self.lines.add("plain", 4 * PER_S)
            opened.enter_context(self.lines)
            self.run(opened, "main", self.lines.path, "--follow")
            wait_until(
                lambda: self.prometheus.up() == {"targets", "worker", "collector"},
                timeout_s=PATIENCE_S,
                description="all are scraped",
            )
            self._open = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def _start_node(self, opened: ExitStack, name: str, *gpus: object, **more: str) -> int:
        command = worker_command(
            *("start", "--redis-url", self.server.url, *SIMULATED, *PATTERNS, *gpus),
            *("--metrics-port", self.ports[name], "--drain-timeout", 20),
        )
        return opened.enter_context(started(command, log=self.folder / f"{name}.log", **KNOBS, **more)).pid

    def run(self, opened: ExitStack, name: str, source: Path, *options: object) -> int:
        """`producer run` of `source` with a metrics port; returns its process."""
        where = ("-o", self.folder / f"{name}-out.jsonl", "--jobs", self.folder / f"{name}-jobs")
        knobs = ("--redis-url", self.server.url, "--metrics-port", 0, "--job-id", name, "--batch-size", 4)
        command = producer_command("run", source, *where, *knobs, "--linger", 0.3, "--pause-above", 1, *options)
        return opened.enter_context(started(command, log=self.folder / f"{name}.log", **KNOBS)).pid

    def start_late_job(self, *, rows: int, in_s: float) -> int:
        """A job that cannot keep its deadline; returns its collector."""
        source = self.folder / "late.jsonl"
        row = {"prompt": "late", "max_tokens": TOKENS}
        source.write_text("".join(json.dumps({"custom_id": f"l{n}", **row}) + "\n" for n in range(rows)))
        due = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(time.time() + in_s))
        return self.run(self._open, "late", source, "--deadline", due)

    def kill_worker(self, node: str) -> None:
        """SIGKILL to a node's worker once it has results, as a supervisor bears few deaths without any."""
        address = f"127.0.0.1:{self.ports[node]}".encode()
        client = self.server.client()
        working: list[str] = []

        def look() -> bool:
            names = set(live_workers(self.server)) - self._killed
            found = {name: cast(Any, client.hmget(name, "metrics", "results")) for name in names}
            working[:] = [name for name, (where, results) in found.items() if where == address and int(results or 0)]
            return bool(working)

        wait_until(look, timeout_s=PATIENCE_S, description="its worker has results")
        with suppress(ProcessLookupError):
            os.kill(int(client.hget(working[0], "pid") or 0), signal.SIGKILL)
        self._killed.add(working[0])  # its heartbeat stands for a while: the supervisor reads its results there

    def drain(self, node: str) -> None:
        """SIGTERM to a node's supervisor."""
        os.kill(self._nodes[node], signal.SIGTERM)

    def fill_redis(self, share: float) -> None:
        """Let what Redis uses be `share` of its maxmemory."""
        client = self.server.client()
        client.config_set("maxmemory", int(client.info("memory")["used_memory"] / share))

    def firing(self) -> set[str]:
        """Alerts that fire now."""
        return {labels["alertname"] for labels, _ in self.prometheus.now('ALERTS{alertstate="firing"}')}
