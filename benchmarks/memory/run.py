"""One size: a server, a warm worker and `producer run`, which is killed half-way and given again."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

from benchmarks.memory.follower import Follower, Peaks, Sample
from benchmarks.memory.inputs import MODEL, REPEATS, Shape, check_output, custom_id, write_input
from producer.journal_reader import Checkpoint
from tests.jobs import only_job
from tests.processes import environment, producer_command, run_producer, started_worker
from tests.servers import VALKEY, Server

POLL_S = 0.2
PARTS = 10
GET_S = 600.0
"""Given up after so long."""


@dataclass
class Figures:
    """What one size came to."""

    shape: Shape
    seconds: float
    """From the start of the command to the end of its second life."""
    samples: list[Sample]
    peaks: Peaks
    first_result_s: float
    received_s: float
    """From the start of the second life to the first result that was not there before."""
    fed_s: float
    """The same to the first line that was not fed before, if there was one."""
    journal_bytes: int
    get_s: float
    """`producer get` of the last line's id."""

    def rates(self) -> list[tuple[int, float]]:
        """(rows done, requests a second) of each tenth; the one in which the command was killed is left out."""
        bounds = [self.shape.rows * part // PARTS for part in range(PARTS + 1)]
        reached = [next(s for s in self.samples if s.done >= done) for done in bounds]
        each = [(b.done, (b.done - a.done) / max(1e-3, b.t_s - a.t_s)) for a, b in pairwise(reached)]
        return each[: PARTS // 2] + each[PARTS // 2 + 1 :]

    def steadiness(self) -> float:
        """The rate of the last tenth against the median of all."""
        rates = [rate for _, rate in self.rates()]
        return rates[-1] / median(rates)


def run_size(folder: Path, shape: Shape) -> Figures:
    """Run `shape` in `folder`, which is to be removed afterwards. Raises `AssertionError`: a result is not right."""
    source, output = folder / "requests.jsonl", folder / "results.jsonl"
    say(f"{shape.name} rows: writing the input")
    write_input(source, shape)
    server = Server(VALKEY, folder / "valkey").start()
    try:
        return _run(folder, server, shape, source, output)
    finally:
        server.stop()


def _run(folder: Path, server: Server, shape: Shape, source: Path, output: Path) -> Figures:
    jobs = folder / "jobs"
    worker = ("--engine", "sim", "--sim-profile", "zero", "--sim-places", 512)
    places = ("-o", output, "--jobs", jobs, "--redis-url", server.url)
    command = producer_command("run", source, *places, "--model", MODEL)
    with started_worker(server, *worker, log=folder / "worker.log") as supervisor:
        follower = Follower(shape.name, jobs=jobs, output=output, server=server, supervisor_pid=supervisor.pid)
        with follower:
            with _producer(command, follower, folder) as first:
                at = _await(follower, lambda stands: stands.counts.done >= shape.rows // 2, first)
                first.kill()
            at = follower.checkpoint() or at
            again_s = time.monotonic()
            with _producer(command, follower, folder) as second:
                _await(follower, lambda stands: stands.counts.done > at.counts.done or stands.state == "done", second)
                received_s = time.monotonic() - again_s
                _await(
                    follower,
                    lambda stands: stands.counts.fed > at.counts.fed or stands.counts.total is not None,
                    second,
                )
                fed_s = time.monotonic() - again_s
                code = second.wait()
            ended_s = time.monotonic()
        say(f"{shape.name} rows: done after {ended_s - follower.began_s:,.0f} s, checking the results")
        log = (folder / "run.log").read_text(errors="replace")[-2000:]
        assert code == 1, f"{REPEATS} lines repeat an id, and the command ended with {code}:\n{log}"
        return _figures(follower, shape, jobs, output, (ended_s - follower.began_s, received_s, fed_s))


def _figures(follower: Follower, shape: Shape, jobs: Path, output: Path, times: tuple[float, float, float]) -> Figures:
    job = only_job(jobs)
    check_output(output, shape, job=job)
    began_s = time.monotonic()
    got = run_producer("get", job, custom_id(shape.rows - 1), "--jobs", jobs, timeout_s=GET_S)
    get_s = time.monotonic() - began_s
    assert got.returncode == 0, got.stderr
    seconds, received_s, fed_s = times
    assert follower.first_result_s is not None
    return Figures(
        shape=shape,
        seconds=seconds,
        samples=follower.samples,
        peaks=follower.peaks,
        first_result_s=follower.first_result_s,
        received_s=received_s,
        fed_s=fed_s,
        journal_bytes=(jobs / job / "journal.sqlite").stat().st_size,
        get_s=get_s,
    )


@contextmanager
def _producer(command: list[str], follower: Follower, folder: Path) -> Iterator["subprocess.Popen[bytes]"]:
    with (folder / "run.log").open("ab") as log:
        process = subprocess.Popen(command, env=environment(), stdout=log, stderr=log)
    follower.producer_pid = process.pid
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _await(follower: Follower, reached: Callable[[Checkpoint], bool], process: "subprocess.Popen[bytes]") -> Checkpoint:
    """Block until the journal says so; the process must not end before."""
    while True:
        ended = process.poll() is not None
        stands = follower.checkpoint()
        if stands is not None and reached(stands):
            return stands
        assert not ended, f"the command ended with {process.returncode}"
        time.sleep(POLL_S)


def say(text: str) -> None:
    """A line of progress."""
    print(text, file=sys.stderr, flush=True)
