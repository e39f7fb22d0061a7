"""Looks at one job many times a second, in Redis and in its journal: who holds what, when lost work is taken up again.

Beside a line's way, and only reading. What it cannot see (Redis away) it leaves out; times are monotonic.
"""

import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import redis

from common.broker import make_client
from common.claim_types import Look, Seen
from common.claims import Claims
from common.errors import BakehouseError
from producer.journal_reader import read_checkpoint

EVERY_S = 0.04
PATIENCE_S = 1.0
"""For one call of Redis: a server that stands still must not keep the watcher."""


class Watcher:
    """A thread from `start` to `stop`."""

    def __init__(self, *, job: str, journal: Path, url: Callable[[], str | None]) -> None:
        """`url`: where the job's server is now; None while there is none."""
        self.micro_batches: Mapping[int, Seen] = {}
        """As last seen."""
        self.results = 0
        """In the journal."""
        self.standstill_s = 0.0
        """The longest time in which no result came into the journal, from the first one to the last."""
        self.redo_s: list[float] = []
        self._job = job
        self._journal = journal
        self._url = url
        self.reading = threading.Lock()
        """Held while the journal's file is open."""
        self._lost: dict[int, tuple[str, float]] = {}
        self._moved_s: float | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._over.set()
        self._thread.join()

    def lose(self, lost: Mapping[int, str], *, at_s: float) -> None:
        """Measure from `at_s` until each of the micro-batches `lost` is held by another token than the one given."""
        self._lost |= {mb: (token, at_s) for mb, token in lost.items()}

    @property
    def awaited(self) -> int:
        """Lost micro-batches that nobody has taken up yet."""
        return len(self._lost)

    def look(self) -> Look | None:
        """The job in Redis, now; None while it cannot be seen."""
        url = self._url()
        if url is None:
            return None
        client = make_client(url, socket_timeout_s=PATIENCE_S)
        try:
            return Claims(client).look(self._job)
        except redis.RedisError:
            return None
        finally:
            client.close()

    def _run(self) -> None:
        while not self._over.wait(EVERY_S):
            seen = self.look()
            if seen is not None and seen.epoch is not None:
                self.micro_batches = seen.micro_batches
                self._follow(seen.micro_batches, time.monotonic())
            self._count(time.monotonic())

    def _follow(self, seen: Mapping[int, Seen], now_s: float) -> None:
        for mb, (token, since_s) in list(self._lost.items()):
            found = seen.get(mb)
            if found is None or (found.st == "FULL" and found.token == token):
                del self._lost[mb]  # finished by the one who had it, or its lines go on in other micro-batches
            elif found.st != "READY" and found.token != token:
                del self._lost[mb]
                self.redo_s.append(now_s - since_s)

    def _count(self, now_s: float) -> None:
        try:
            with self.reading:
                checkpoint = read_checkpoint(self._journal)
        except (BakehouseError, sqlite3.Error):
            return
        done = 0 if checkpoint is None else checkpoint.counts.done
        if done > self.results:
            if self._moved_s is not None:
                self.standstill_s = max(self.standstill_s, now_s - self._moved_s)
            self.results, self._moved_s = done, now_s
