"""Hints: Celery messages that say "micro-batch n of job j is ready". Sent after the offer; they may be lost or doubled.

Nothing rests on them: the janitor hints again what stays unclaimed. They name no exchange, so that a flushed Redis
needs no declaration before the next one arrives.
"""

import os
import socket
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

import redis
from kombu import Connection, Producer
from kombu.exceptions import KombuError
from kombu.utils.uuid import uuid

from common.broker import (
    LEFT_PRIORITIES,
    PRIORITIES,
    PRIORITY_STEPS,
    REDELIVERY_PRIORITY,
    TASK_NAME,
    hint_list,
    make_connection,
)
from common.settings import Priority, Settings
from common.wire import WIRE_VERSION
from producer import metrics
from producer.window import Hint, OpenMicroBatch

Route = Callable[[str], str]
"""Model -> the queue its hints go to."""
_NO_OPTIONS: dict[str, object] = {
    "lang": "py",
    "shadow": None,
    "eta": None,
    "expires": None,
    "group": None,
    "group_index": None,
    "retries": 0,
    "timelimit": [None, None],
    "parent_id": None,
    "kwargsrepr": "{}",
    "ignore_result": False,
    "replaced_task_nesting": 0,
    "stamped_headers": None,
    "stamps": {},
}
_NO_WORKFLOW = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
"""Celery's message protocol 2, written here: the app that writes it takes as long to import as a small job to run."""
MOST_LEFT = 4096
"""In one list, about a kilobyte each: so much is left of jobs whose collector has ended, however often that happens."""


class Hints:
    """Sends one job's hints over a connection of its own."""

    def __init__(self, settings: Settings, *, job: str, priority: Priority) -> None:
        self._settings = settings
        self._origin = f"{os.getpid()}@{socket.gethostname()}"
        self._job = job
        self._own_priority = self._priority = PRIORITIES[priority]
        self._left_priority = LEFT_PRIORITIES[priority]
        self._connection: Connection | None = None
        self._producer: Producer | None = None

    def hurry(self, is_urgent: bool) -> None:
        """From now on hint as a job of high priority, or as the user said."""
        self._priority = PRIORITIES["high"] if is_urgent else self._own_priority

    def send(self, batches: Iterable[OpenMicroBatch], *, route: Route, now_s: float, reason: str) -> None:
        """Hint each of `batches` in one round trip; notes it in them.

        Raises `redis.RedisError` for whatever kept them from being sent; then some may have gone.
        """
        self._send(
            [(batch, Hint(now_s, route(batch.row.model), self._priority_of(batch))) for batch in batches],
            reason=reason,
        )

    def leave(self, batches: Iterable[OpenMicroBatch], client: redis.Redis, *, route: Route, now_s: float) -> None:
        """Hint each of `batches` behind what others feed, for a job that nobody feeds any more.

        Where many such hints wait already, no more are sent: nobody takes back what a later collector hints again.
        """
        by_queue: defaultdict[str, list[OpenMicroBatch]] = defaultdict(list)
        for batch in batches:
            by_queue[route(batch.row.model)].append(batch)
        for queue, left in by_queue.items():
            room = max(0, MOST_LEFT - client.llen(hint_list(queue, self._left_priority)))
            self._send([(batch, Hint(now_s, queue, self._left_priority)) for batch in left[:room]], reason="left")

    def _send(self, noted: Sequence[tuple[OpenMicroBatch, Hint]], *, reason: str) -> None:
        if not noted:
            return
        try:
            producer = self._open()
            with producer.batch():
                for batch, hint in noted:
                    self._publish(producer, batch, hint)
        except (KombuError, redis.RedisError, OSError) as error:
            self.close()
            if isinstance(error.__cause__, redis.OutOfMemoryError):
                raise error.__cause__ from error
            raise redis.ConnectionError(f"hints could not be sent: {error}") from error
        for batch, hint in noted:
            batch.hint = hint
        metrics.HINTS.labels(reason).inc(len(noted))

    def empty_queues(self, client: redis.Redis, queues: Sequence[str]) -> frozenset[str]:
        """Those of `queues` in which no hint waits, at any priority."""
        with client.pipeline(transaction=False) as pipe:
            for queue in queues:
                for priority in PRIORITY_STEPS:
                    pipe.llen(hint_list(queue, priority))
            lengths = pipe.execute() if queues else []
        step = len(PRIORITY_STEPS)
        return frozenset(queue for i, queue in enumerate(queues) if not any(lengths[i * step : (i + 1) * step]))

    def close(self) -> None:
        """Drop the connection; the next hint opens a new one."""
        connection, self._connection, self._producer = self._connection, None, None
        if connection is not None:
            connection.release()

    def _priority_of(self, batch: OpenMicroBatch) -> int:
        return REDELIVERY_PRIORITY if batch.goes_first else self._priority

    def _open(self) -> Producer:
        if self._producer is None:
            self._connection = make_connection(self._settings)
            self._connection.connect()
            self._producer = Producer(self._connection.channel(), auto_declare=False)
        return self._producer

    def _publish(self, producer: Producer, batch: OpenMicroBatch, hint: Hint) -> None:
        mb, n = batch.row.mb, batch.missing
        task_id = uuid()
        producer.publish(
            ((WIRE_VERSION, self._job, mb, n), {}, _NO_WORKFLOW),
            exchange="",
            routing_key=hint.queue,
            serializer="json",
            headers={
                **_NO_OPTIONS,
                "task": TASK_NAME,
                "id": task_id,
                "root_id": task_id,
                "argsrepr": f"job={self._job} mb={mb} n={n}",
                "origin": self._origin,
            },
            priority=hint.priority,
            retry=False,
            correlation_id=task_id,
            reply_to="",
        )
