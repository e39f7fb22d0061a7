"""The fleet as the benchmark drives it: a server, a warm worker a model, `producer run`."""

import json
import resource
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.engine.cpu import COLLECTOR, SERVER, SUPERVISOR, cpu_s, spent
from benchmarks.engine.measured import Measured, tail_s
from benchmarks.engine.setup import GENERATOR, Setup
from benchmarks.engine.steps import served_steps
from benchmarks.engine.timeline import edges_of, read_timeline
from benchmarks.engine.workloads import salted
from tests.processes import live_workers, run_producer, started, worker_command
from tests.prometheus_server import free_port
from tests.servers import VALKEY, Server
from tests.waiting import wait_until

LONGEST_S = 1_800
READY_S = 300
"""On a busy machine; a quiet one takes 20."""


class Fleet:
    """One worker for each model."""

    def __init__(self, setup: Setup, folder: Path, open_: ExitStack) -> None:
        self.server = Server(VALKEY, folder / "valkey").start()
        open_.callback(self.server.stop)
        self._setup = setup
        self._folder = folder
        self._open = open_
        self._port = 0
        assert self.server.process is not None
        self._pids = {self.server.process.pid: SERVER}

    def start(self, name: str, *, log_level: str = "warning") -> Path:
        """Start the worker of a model and wait until it is ready; returns its log."""
        port, log = free_port(), self._folder / f"worker-{name}.log"
        own = ("--model", self._setup.model, "--served-model-name", name, "--log-level", log_level)
        place = ("--redis-url", self.server.url, "--metrics-port", port)
        command = worker_command("start", *place, *own, "--", *self._setup.flags(name))
        ready = len(live_workers(self.server)) + 1
        worker = self._open.enter_context(started(command, log=log))
        wait_until(
            lambda: worker.poll() is not None or len(live_workers(self.server)) == ready,
            timeout_s=READY_S,
            description=f"the worker of {name} is ready",
        )
        self._pids[worker.pid] = SUPERVISOR
        if name == GENERATOR:
            self._port = port
        return log

    def run(self, rows: Path, *, salt: str, first: int | None = None) -> Measured:
        """The `first` rows or all as one job on warm workers; its clock is the job summary's."""
        folder = self._folder / salt
        folder.mkdir()
        source, output = salted(rows, folder / "rows.jsonl", salt=salt, first=first), folder / "out.jsonl"
        before, collector_before_s, steps = cpu_s(self._pids), _ended_children_s(), served_steps(self._port)
        summary = self._run_job(source, output, jobs=folder / "jobs")
        timeline, seconds = read_timeline(output), summary["elapsed_s"]
        last_line_at = output.stat().st_mtime_ns / 1e9
        ended_s = [row.ended_at for row in timeline if row.model == GENERATOR]
        return Measured(
            seconds=seconds,
            tokens=summary["completion_tokens"],
            steps=served_steps(self._port) - steps,
            tail_s=tail_s(ended_s, concurrency=self._setup.concurrency),
            cpu_s={**spent(before, cpu_s(self._pids)), COLLECTOR: _ended_children_s() - collector_before_s},
            edges=edges_of(
                timeline,
                model=GENERATOR,
                concurrency=self._setup.concurrency,
                last_line_at=last_line_at,
                seconds=seconds,
            ),
        )

    def _run_job(self, source: Path, output: Path, *, jobs: Path) -> dict[str, Any]:
        """Its summary. Raises `SystemExit` when it fails, or was not run by the workers that were there."""
        workers = set(live_workers(self.server))
        place = ("--redis-url", self.server.url, "--jobs", jobs, "--json")
        ended = run_producer("run", source, "-o", output, *place, timeout_s=LONGEST_S)
        if ended.returncode != 0:
            raise SystemExit(f"producer run ended with {ended.returncode}:\n{ended.stderr[-2000:]}")
        if set(live_workers(self.server)) != workers:
            raise SystemExit("the workers that are live now are not those that were when the job began")
        summary: dict[str, Any] = json.loads(ended.stdout)
        return summary


def _ended_children_s() -> float:
    """Processor time of this process's children that have ended: the `producer run` of each run, its start included."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
