"""Simulated workers on one server, in real processes: nodes that join and leave, each with a supervisor of its own."""

import math
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from benchmarks.scale.rows import MODEL
from benchmarks.scale.spans import SimWorker
from common import keys
from tests.processes import live_workers, started, worker_command
from tests.servers import Server
from tests.waiting import wait_until

READY_S = 240.0
LEFT_S = 60.0
START_GENTLY = ("nice", "-n", "10")
"""Starts of workers take whole cores for a while, which on nodes of their own would be nobody else's."""


class Node(NamedTuple):
    """A supervisor and its workers."""

    process: subprocess.Popen[bytes]
    ready_at: dict[str, float]
    """Incarnation -> when it was seen to be ready, in seconds since 1970."""
    step_s: float


class Fleet:
    """All nodes that are there now. Ended, with all their processes, by the caller's `open_`."""

    def __init__(self, server: Server, folder: Path, *, places: int, step_s: float, open_: ExitStack) -> None:
        self.server = server
        self.nodes: list[Node] = []
        self._folder = folder
        self._places = places
        self._step_s = step_s
        self._open = open_
        self._started = 0

    def grow(self, workers: int) -> None:
        """Let as many more join as are missing to `workers`. Blocks until they are ready."""
        missing = workers - len(self.workers())
        if missing > 0:
            self.join(missing)

    def join(self, workers: int, *, slowness: float = 1.0) -> Node:
        """A new node of so many workers, each step `slowness` times as long as usual. Blocks until it is ready."""
        before, ready_at = self._live(), dict[str, float]()
        step_s = self._step_s * slowness
        engine = ("--engine", "sim", "--sim-places", self._places, "--sim-seconds", step_s)
        where = ("--redis-url", self.server.url, "--workers", workers, "--log-level", "warning")
        command = [*START_GENTLY, *worker_command("start", *where, "--model", MODEL, *engine)]
        self._started += 1
        log = self._folder / f"node{self._started}.log"
        cache = self._folder / f"cache{self._started}"
        process = self._open.enter_context(started(command, log=log, XDG_CACHE_HOME=str(cache)))

        def all_ready() -> bool:
            ready_at.update({name: time.time() for name in self._live() - before - ready_at.keys()})
            return process.poll() is not None or len(ready_at) >= workers

        wait_until(all_ready, timeout_s=READY_S, description=f"{workers} more workers are ready; their log: {log}")
        if process.poll() is not None:
            raise SystemExit(f"a node ended with {process.returncode}:\n{log.read_text()[-2000:]}")
        node = Node(process, ready_at, step_s)
        self.nodes.append(node)
        return node

    def leave(self, node: Node) -> None:
        """SIGTERM to its supervisor, as whoever stops a node does it. Blocks until it has ended."""
        node.process.terminate()
        node.process.wait(LEFT_S)
        self.nodes.remove(node)

    def workers(self) -> list[SimWorker]:
        """Those that are there now, as if they always had been."""
        return [worker for node in self.nodes for worker in self.workers_of(node)]

    def workers_of(self, node: Node, *, since: float | None = None, until_s: float = math.inf) -> list[SimWorker]:
        """The workers of one node; with `since` (in seconds since 1970), each from then on when it was ready."""
        return [
            SimWorker(name, self._places, node.step_s, 0.0 if since is None else ready_at - since, until_s)
            for name, ready_at in node.ready_at.items()
        ]

    def processes(self) -> dict[str, list[int]]:
        """Whom to watch: by role, the heads of what runs."""
        assert self.server.process is not None
        return {"workers": [node.process.pid for node in self.nodes], "server": [self.server.process.pid]}

    def _live(self) -> set[str]:
        return {name.removeprefix(keys.WORKER_PREFIX) for name in live_workers(self.server)}
