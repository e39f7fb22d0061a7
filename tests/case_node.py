"""A server, workers on the simulated engine that count their calls, and one case's job: for cases that are steps."""

import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import orjson
import psutil

from common.claim_types import Seen
from common.claims import Claims
from producer.job_directory import JobDirectory
from tests.case_checker import Case, check_run, read_cases
from tests.processes import producer_command, read_results, started, started_worker
from tests.servers import VALKEY, Server
from worker.engines.sim_engine import CALLS_VARIABLE

CASES = {case.name: case for case in read_cases()}
CASES["A26"] = CASES["A20"]._replace(name="A26", expect="FILE=reject @!0|1")


class Node:
    """A server, workers on the simulated engine that count their calls, and one case's job."""

    def __init__(self, folder: Path, case: Case, *sim_flags: object, **worker_knobs: str) -> None:
        self.folder, self.case = folder, case
        self.server = Server(VALKEY, folder / "data").start()
        self.jobs, self.output, self.log = folder / "jobs", folder / "out.jsonl", folder / "run.log"
        self.calls_path = folder / "calls"
        self._flags = ("--engine", "sim", *sim_flags)
        self._knobs = {CALLS_VARIABLE: str(self.calls_path), "XDG_CACHE_HOME": str(folder / "cache"), **worker_knobs}
        self._stack = ExitStack()
        self._workers = 0

    def worker(self) -> "subprocess.Popen[bytes]":
        """One more worker, ready; returns its supervisor."""
        self._workers += 1
        log = self.folder / f"worker-{self._workers}.log"
        return self._stack.enter_context(started_worker(self.server, *self._flags, log=log, **self._knobs))

    def arguments(self, *more: object) -> list[object]:
        """Of `producer run` for the case."""
        places = ("-o", self.output, "--jobs", self.jobs, "--redis-url", self.server.url)
        return ["run", self.case.path, *places, *more]

    def start(self, *more: object) -> "subprocess.Popen[bytes]":
        """Start the run."""
        return self._stack.enter_context(started(producer_command(*self.arguments(*more)), log=self.log))

    def await_end(self, run: "subprocess.Popen[bytes]", *, timeout_s: float = 90) -> None:
        """Wait for its end and judge it."""
        self.check(run.wait(timeout_s))

    def check(self, exit_code: int) -> None:
        """Judge a run that ended so."""
        check_run(self.case.expect, input_path=self.case.path, output_path=self.output, exit_code=exit_code)

    def held(self) -> Counter[str]:
        """How many micro-batches each worker holds now."""
        return Counter(str(each.worker) for each in self._held())

    def held_requests(self, *, batch_size: int) -> int:
        """Requests in the hands of workers, and not published; all micro-batches are full ones."""
        return sum(batch_size - each.got.bit_count() for each in self._held())

    def _held(self) -> list[Seen]:
        jobs = JobDirectory.list_all(self.jobs)
        looks = [Claims(self.server.client()).look(job.spec.job) for job in jobs]
        return [seen for look in looks for seen in look.micro_batches.values() if seen.st == "HELD"]

    def calls(self) -> Counter[str]:
        """How often the engines were asked each body."""
        return Counter(orjson.loads(line)["sha"] for line in self.calls_path.read_bytes().splitlines())

    def process_of(self, supervisor: "subprocess.Popen[bytes]") -> psutil.Process:
        """The one worker process below a supervisor."""
        (worker,) = psutil.Process(supervisor.pid).children()
        return worker

    def results(self) -> list[dict[str, Any]]:
        """The ordered file's lines."""
        return read_results(self.output)

    def close(self) -> None:
        """End all of it."""
        self._stack.close()
        self.server.stop()


@contextmanager
def node(folder: Path, name: str, *sim_flags: object, **worker_knobs: str) -> Iterator[Node]:
    """The node of one case."""
    made = Node(folder, CASES[name], *sim_flags, **worker_knobs)
    try:
        yield made
    finally:
        made.close()
