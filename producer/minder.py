"""Looks after a running collector: interrupts, and the end of what was started for it. It ends the run, never the work.

A thread, since the collector has the main one. It polls: signal handlers and other processes only leave marks.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Self, TypeVar

import redis

from common import keys
from common.errors import BakehouseError, InterruptedJobError, StoppedError
from producer.collector import Collector
from producer.embedded import EmbeddedServer
from producer.interrupts import Interrupts
from producer.local_worker import LocalWorker, count_ready
from producer.progress import Show, describe_start

T = TypeVar("T")
TURN_S = 0.1
LAST_RESULTS_S = 5.0
"""A worker has ended: the collector may take in what it published for so long."""


class Embedded:
    """The server and the worker that a command brings along. The collector need not wait for the worker's engine."""

    def __init__(
        self, server: EmbeddedServer, worker: LocalWorker, client: redis.Redis, *, workers: int, drain_timeout_s: float
    ) -> None:
        self.server = server
        self.worker = worker
        self.client = client
        self.drain_timeout_s = drain_timeout_s
        self.ready_s: float | None = None
        """When all of `workers` were ready, by the monotonic clock."""
        self._workers = workers
        self._began_s = time.monotonic()

    def await_worker(self, show: Show) -> None:
        """See whether the workers are ready, and show how their start goes on."""
        if self.ready_s is not None:
            return
        with suppress(redis.RedisError):  # the end of the server is told elsewhere
            if count_ready(self.client) < self._workers:
                show.wait(describe_start(time.monotonic() - self._began_s, self.worker.memory_bytes()))
            else:
                self.ready_s = time.monotonic()
                show.wait(None)

    def once_ready(self, call: Callable[[T], None]) -> Callable[[T], None]:
        """`call`, silent until the workers are ready: their start is shown instead."""
        return lambda value: None if self.ready_s is None else call(value)


class Minder:
    """Entered while `collector` runs. Afterwards `verdict` is why it was told to stop, None where nobody told it."""

    def __init__(
        self,
        collector: Collector,
        *,
        job: str,
        interrupts: Interrupts,
        show: Show,
        embedded: Embedded | None,
        on_interrupt: Callable[[], None],
    ) -> None:
        """`on_interrupt` is called once, in the minder's thread."""
        self._collector = collector
        self._job = job
        self._interrupts = interrupts
        self._show = show
        self._embedded = embedded
        self._on_interrupt = on_interrupt
        self._draining = False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._mind, name="minder", daemon=True)
        self.verdict: BakehouseError | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _mind(self) -> None:
        while not self._over.wait(TURN_S):
            self.verdict = self._look()
            if self.verdict is not None:
                self._collector.stop()
                return

    def _look(self) -> BakehouseError | None:
        """Why the run must end now, None to go on."""
        interrupts, embedded = self._interrupts.count, self._embedded
        if interrupts and not self._draining:
            self._draining = True
            self._begin_to_drain()
        if interrupts and (embedded is None or interrupts > 1):
            return InterruptedJobError("interrupted")
        if embedded is None:
            return None
        if ended := embedded.server.ended():
            return StoppedError(ended)
        embedded.await_worker(self._show)
        if ended := embedded.worker.ended():
            self._await_last_results(embedded)
            return InterruptedJobError("interrupted") if self._draining else StoppedError(ended)
        return None

    def _begin_to_drain(self) -> None:
        self._on_interrupt()
        if self._embedded is None:
            self._show.say("interrupted: the fleet keeps what it was given; its results wait in Redis")
            return
        seconds = self._embedded.drain_timeout_s
        self._show.say(f"interrupted: what runs may finish for {seconds:g} s; Ctrl-C again ends at once")
        self._embedded.worker.drain()

    def _await_last_results(self, embedded: Embedded) -> None:
        """Block until the collector has taken in all that was published, or for 5 s."""
        deadline = time.monotonic() + LAST_RESULTS_S
        try:
            while embedded.client.xlen(keys.results(self._job)) and time.monotonic() < deadline:
                if self._over.wait(TURN_S):
                    return
        except redis.RedisError:
            return
