"""How many requests may be in flight, and the gate on Celery's consumer that keeps it so; other hints stay in Redis.

Requests are counted, not micro-batches: early finishers must not leave holes in the engine until the longest of
their micro-batch ends. What counts is the requests in the engine and those in messages received and not yet begun.
"""

import threading
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from typing import Any

from celery import bootsteps

from worker.metrics import IN_FLIGHT, TARGET

MOST_RESTING = 2
"""Times the target may wait for another attempt before no more is taken: all of them come back within seconds."""


class Admission:
    """The count. Any thread may call anything."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.received_total = 0
        """Messages taken from Redis in this life."""
        self._lock = threading.Lock()
        self._received: dict[str, int] = {}
        self._waiting = 0
        self._in_flight = 0
        self._resting = 0
        """Requests that wait for another attempt: they hold no place, and come back all at once."""
        self._closed = False
        self._suspects = 0
        self._one_by_one = False
        self._refused = False
        self._wake: Callable[[], object] = lambda: None
        TARGET.set(target)
        IN_FLIGHT.set_function(lambda: self._in_flight)

    @property
    def in_flight(self) -> int:
        """Requests in the engine, or just about to be."""
        return self._in_flight

    @property
    def load(self) -> int:
        """Requests in flight and requests in messages received and not yet begun."""
        return self._in_flight + self._waiting

    def on_reopen(self, wake: Callable[[], object]) -> None:
        """Call `wake`, from any thread, when places fall free after the gate refused."""
        self._wake = wake

    @property
    def has_room(self) -> bool:
        """Whether another message may be taken now."""
        if self._closed or self._suspects or (self._one_by_one and self._waiting > 0):
            return False
        return self.load < self.target and self._resting < MOST_RESTING * self.target

    def is_open(self) -> bool:
        """The same, asked by the consumer: where the answer is no, it is woken when that changes."""
        if self.has_room:
            return True
        self._refused = True
        return self.has_room  # what fell free between the look and the note woke nobody

    @contextmanager
    def held_back(self) -> Iterator[None]:
        """Take no message meanwhile, for a suspect that wants the engine for itself; then begin with one alone.

        That one may be the next suspect's, and what came with it would have to run first.
        """
        with self._lock:
            self._suspects += 1
        try:
            yield
        finally:
            with self._lock:
                self._suspects -= 1
                self._one_by_one = True
            self._reopen()

    def set_target(self, target: int) -> None:
        """Keep so many in flight from now on; what is above it ends by itself."""
        self.target = target
        TARGET.set(target)
        self._reopen()

    def close(self) -> None:
        """Take no more, for good; the consumer is woken to notice."""
        self._closed = True
        self._wake()

    def received(self, message_id: str, requests: int) -> None:
        """A message with `requests` requests has been taken from Redis."""
        with self._lock:
            self.received_total += 1
            self._waiting += requests - self._received.get(message_id, 0)
            self._received[message_id] = requests

    def begun(self, message_id: str) -> None:
        """Its requests are in flight now and counted there, or it was dropped. Repeats do nothing."""
        with self._lock:
            if message_id in self._received:
                self._waiting -= self._received.pop(message_id)
                self._one_by_one = False
        self._reopen()

    def move(self, change: int) -> None:
        """The number of requests in the engine changed. From the engine's loop only."""
        self._in_flight += change
        if self._refused and change < 0:
            self._reopen()

    def rest(self, change: int) -> None:
        """The number of requests that wait for another attempt changed. From the engine's loop only."""
        self._resting += change
        if self._refused and change < 0:
            self._reopen()

    def reconcile(self, known: Container[str]) -> None:
        """Forget messages that Celery no longer knows: revoked, or dropped with a lost connection."""
        for message_id in [message_id for message_id in list(self._received) if message_id not in known]:
            self.begun(message_id)

    def _reopen(self) -> None:
        if self._refused and self.has_room:
            self._refused = False
            self._wake()


def gate_step(admission: Admission) -> type:
    """The consumer bootstep that puts `admission` before every message; Celery runs it again at each reconnect."""

    def start(_step: object, consumer: Any) -> None:
        qos = consumer.task_consumer.channel.qos
        can_consume = qos.can_consume
        qos.can_consume = lambda: admission.is_open() and can_consume()
        admission.on_reopen(lambda: consumer.hub.call_soon(_noop))

    attributes = {"requires": ("celery.worker.consumer.tasks:Tasks",), "start": start}
    return type("Gate", (bootsteps.StartStopStep,), attributes)


def _noop() -> None:
    """Wakes the consumer's loop, which then asks the gate again."""
