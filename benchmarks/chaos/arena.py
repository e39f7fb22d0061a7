"""What chaos befalls: a server with an append-only file, nodes of workers, one job, and its collector."""

import random
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self

import redis

from benchmarks.chaos.lines import POISON, write_lines
from benchmarks.chaos.node import Node
from benchmarks.chaos.shape import MODEL, REAL_ENGINE, Place, Shape, Verb
from benchmarks.chaos.watcher import Watcher
from common.broker import make_client
from tests.faults.proxy import Proxy
from tests.faults.small_disk import mounted
from tests.faults.stepped_clock import ClockedServer, SteppedClock
from tests.processes import (
    live_workers,
    producer_command,
    run_producer,
    worker_command,
)
from tests.servers import VALKEY, Server
from tests.waiting import wait_until
from worker.engines.sim_tokens import TOKENS_VARIABLE, tokens_made

JOB = "chaos"
READY_S = 40.0
REAL_READY_S = 240.0


class Arena:
    """One set-up, from `with` to its end; every process in it is ended there."""

    def __init__(self, folder: Path, shape: Shape, *, draw: random.Random) -> None:
        self.folder = folder
        self.shape = shape
        self.draw = draw
        self.verb: Verb = draw.choice(shape.verbs)
        self.poisonous = sorted(draw.sample(range(shape.rows // 8, shape.rows), 2)) if shape.poison else []
        self._open = ExitStack()
        self.disk = self._open.enter_context(mounted(folder / "disk")) if shape.on_small_disk else None
        self.source = folder / "in.jsonl"
        self.output = self._place("output") / "out.jsonl"
        self.jobs = self._place("jobs") / "jobs"
        self.journal_path = self.jobs / JOB / "journal.sqlite"
        self.tokens_folder = folder / "tokens"
        self.clock = SteppedClock(folder) if shape.is_clocked else None
        data = self._place("data") / "data"
        self.server = Server(VALKEY, data) if self.clock is None else ClockedServer(VALKEY, data, clock=self.clock)
        self.proxy = self._open.enter_context(Proxy(self.server.socket)) if shape.is_proxied else None
        self.address = self.proxy.url if self.proxy else self.server.url
        variables = {TOKENS_VARIABLE: str(self.tokens_folder), **(self.clock.environment if self.clock else {})}
        counts = () if self.verb == "embedded" else shape.nodes
        self.nodes = [
            Node(f"node{number}", self._node_command(count), folder=folder, variables=variables)
            for number, count in enumerate(counts)
        ]
        self.collector = Node("collector", self.job_command(self.verb), folder=folder, variables=variables)
        self.watcher = Watcher(job=JOB, journal=self.journal_path, url=self.url)

    def __enter__(self) -> Self:
        self.tokens_folder.mkdir(parents=True)
        write_lines(self.source, self.shape.rows, poisonous=self.poisonous)
        self.watcher.start()
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.watcher.stop()
        for node in [self.collector, *self.nodes]:
            node.close()
        self.server.stop()
        self._open.close()

    def url(self) -> str | None:
        """The job's server, of the run itself where it brings one along; None while there is none."""
        if self.verb != "embedded":
            return self.server.url
        with suppress(OSError):
            return f"unix://{(self.jobs / JOB / 'redis' / 'socket').read_text()}/valkey.sock"
        return None

    def client(self) -> redis.Redis:
        """A fresh client of the job's server."""
        url = self.url()
        assert url is not None, "no server yet"
        return make_client(url)

    def job_command(self, verb: Verb) -> list[str]:
        """A command that carries the job; given again, it goes on with it."""
        where = ("--jobs", self.jobs)
        if verb == "collect":
            return producer_command("collect", JOB, *where, "--redis-url", self.address)
        sizes = ("--job-id", JOB, "--batch-size", self.shape.batch_size, *self.shape.job_flags)
        asked = (self.source, "-o", self.output, *where, *sizes)
        if verb == "embedded":
            return producer_command("run", *asked, *self._engine(), "--workers", sum(self.shape.nodes))
        return producer_command(verb, *asked, "--model", MODEL, "--redis-url", self.address)

    def enqueue(self) -> None:
        """Give `enqueue` and wait for its end."""
        ended = run_producer(*self.job_command("enqueue")[4:])
        assert ended.returncode == 0, ended.stderr[-2000:]

    def await_workers(self, count: int) -> None:
        """Block until so many workers are ready."""
        wait_until(
            lambda: len(live_workers(self.server)) >= count,
            timeout_s=REAL_READY_S if self.shape.is_real else READY_S,
            description=f"{count} workers are ready",
        )

    def durable_lines(self) -> bytes:
        """The whole lines of the ordered file."""
        raw = self.output.read_bytes() if self.output.exists() else b""
        return raw[: raw.rfind(b"\n") + 1]

    def pause(self, shortest_s: float, longest_s: float) -> float:
        """Let a drawn time go by; returns it."""
        pause_s = self.draw.uniform(shortest_s, longest_s)
        over_s = time.monotonic() + pause_s
        wait_until(lambda: time.monotonic() >= over_s, timeout_s=pause_s + 10, description="a pause is over")
        return pause_s

    def finish(self, *, timeout_s: float) -> int | None:
        """The collector's exit code; None when it has not ended by then."""
        with suppress(AssertionError):
            wait_until(lambda: self.collector.ended, timeout_s=timeout_s, description="the job's end")
        return self.collector.process.poll()

    def _start(self) -> None:
        if self.nodes:
            self.server.start()
            for node in self.nodes:
                node.start()
            self.await_workers(sum(self.shape.nodes))
        if self.verb == "collect":
            self.enqueue()
        self.collector.start()

    def _place(self, name: Place) -> Path:
        return self.disk.path if self.disk is not None and name in self.shape.on_small_disk else self.folder

    def _node_command(self, workers: int) -> list[str]:
        named = () if self.shape.is_real else ("--model", MODEL)
        where = ("--redis-url", self.address, "--workers", workers, *self.shape.worker_flags)
        return worker_command("start", *where, *named, *self._engine())

    def _engine(self) -> tuple[object, ...]:
        if self.shape.is_real:
            return REAL_ENGINE
        patterns = ("--sim-pattern", f"{self.shape.poison}={POISON}") if self.shape.poison else ()
        return ("--engine", "sim", "--sim-seconds", self.shape.step_s, "--sim-places", self.shape.places, *patterns)

    def tokens_made(self) -> int:
        """Tokens that all engines have made so far, the dead ones too."""
        return tokens_made(self.tokens_folder)
