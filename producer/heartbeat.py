"""The heartbeat in Redis of who owns jobs or tells of targets: where its metrics are found. Beside a line's way.

Written every 5 s from a thread of its own, for discovery alone: who owns a job, and whether it lives, stands elsewhere.
"""

import os
import secrets
import threading
from contextlib import suppress
from typing import Literal, Self

import redis

from common import keys
from common.notes import note

Role = Literal["collector", "targets"]
"""What the process is there for: to own jobs, or to tell of targets alone."""
LAST_WORD_S = 1.0
"""A command that ends waits no longer to take its heartbeat back; it goes by itself."""


class Heartbeat:
    """While entered, this process is found."""

    def __init__(self, client: redis.Redis, *, metrics: str, role: Role = "collector", every_s: float) -> None:
        """`metrics`: the address and port at which this process is scraped."""
        self._client = client
        self._every_s = every_s
        host = os.uname().nodename
        self._key = keys.collector(f"{host}-{secrets.token_hex(4)}")
        self._fields = {"host": host, "pid": os.getpid(), "metrics": metrics, "role": role}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(LAST_WORD_S)

    def _run(self) -> None:
        while not self._stopped.is_set():
            with suppress(redis.RedisError):  # whoever scrapes knows the last address; the next beat says it again
                note(self._client, self._key, self._fields, lifetime_s=keys.WORKER_LIFETIME_S)
            self._stopped.wait(self._every_s)
        with suppress(redis.RedisError):
            self._client.delete(self._key)
