"""A worker's heartbeat in Redis: who it is, what it serves, how much it takes. Live is who has one.

Written every 5 s from a thread of its own, also while the engine starts and while Redis is away; it outlives the
worker by up to 20 s.
"""

import json
import os
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import metadata
from typing import Literal

import redis

from common import keys
from common.notes import note
from common.wire import WIRE_VERSION
from worker.engines.base import EngineFacts
from worker.outage import Outage

State = Literal["starting", "ready", "draining"]


class Presence:
    """The heartbeat of one incarnation."""

    def __init__(
        self, client: redis.Redis, *, incarnation: str, gpu: str, engine: str, every_s: float, outage: Outage
    ) -> None:
        self._client = client
        self._key = keys.worker(incarnation)
        self._every_s = every_s
        self._outage = outage
        self._stopped = threading.Event()
        self._counts: Callable[[], dict[str, str | int]] = dict
        self._lock = threading.Lock()
        self._told_idle = False
        self._fields: dict[str, str | int] = {
            "models": "[]",
            "digest": "",
            "state": "starting",
            "target": 0,
            "in_flight": 0,
            "results": 0,
            "idle_s": 0,
            "start": "{}",
            "host": os.uname().nodename,
            "gpu": gpu,
            "metrics": "",
            "pid": os.getpid(),
            "engine": engine,
            "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "version": metadata.version("bakehouse"),
            "wire": WIRE_VERSION,
        }

    def start(self, *, metrics: str = "") -> None:
        """Beat until `stop`. `metrics`: where this worker's metrics are found, if anywhere."""
        self._fields["metrics"] = metrics
        threading.Thread(target=self._run, name="presence", daemon=True).start()

    def ready(self, facts: EngineFacts, *, counts: Callable[[], dict[str, str | int]]) -> None:
        """The engine is up. `counts` gives `target`, `in_flight`, `results`, `idle_s` and the like at each beat."""
        self._counts = counts
        self._fields |= {
            "models": json.dumps(facts.served_models),
            "digest": facts.digest,
            "engine": facts.name,
        }
        self.set_state("ready")

    def set_start(self, phases: str) -> None:
        """How long the start took, as JSON; say so at once."""
        self._fields["start"] = phases
        self._beat_now()

    def set_state(self, state: State) -> None:
        """Say so at once."""
        self._fields["state"] = state
        self._beat_now()

    def work_came(self) -> None:
        """Say so at once, if the last beat was an idle worker's: its supervisor may be about to end it for that."""
        if self._told_idle:
            self._told_idle = False
            self._beat_now()

    def beat(self) -> None:
        """Write it once; Redis away is noted, no more."""
        with self._lock:
            if self._stopped.is_set():
                return
            self._told_idle = True  # first: work that comes while the counts are read is told by the next beat
            fields = self._fields | self._counts()
            self._told_idle = self._told_idle and bool(fields["idle_s"])
            try:
                note(self._client, self._key, fields, lifetime_s=keys.WORKER_LIFETIME_S)
            except redis.RedisError as error:
                self._outage.missed(error)
            else:
                self._outage.met()

    def stop(self) -> None:
        """This worker is live no more."""
        self._stopped.set()
        with self._lock:
            try:
                self._client.delete(self._key)
            except redis.RedisError as error:
                self._outage.missed(error)

    def _beat_now(self) -> None:
        """From a thread of its own: the caller may be the engine's loop, and Redis may be slow."""
        threading.Thread(target=self.beat, name="presence-now", daemon=True).start()

    def _run(self) -> None:
        while not self._stopped.is_set():
            self.beat()
            self._stopped.wait(self._every_s)
