"""Follows one job's processes, its Redis and its journal: a look a second, and a line a minute to stderr."""

import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Self

import psutil
import redis

from common.errors import BakehouseError
from producer.journal_reader import Checkpoint, JournalReader
from tests.processes import memory_of
from tests.servers import Server

LOOK_S = 1.0
SAY_S = 60.0
MIB = 1024 * 1024
PRODUCER, SUPERVISOR, WORKER, REDIS = "producer and collector", "supervisor", "worker", "redis"


class Sample(NamedTuple):
    """One look."""

    t_s: float
    """Since the job was started."""
    done: int
    bytes: dict[str, int]
    """Resident memory by role."""
    redis_bytes: int
    """`used_memory`."""


@dataclass
class Peaks:
    """The most that was ever seen."""

    processes: dict[str, int] = field(default_factory=dict)
    """Role -> VmHWM: what the kernel saw, also between two looks. The larger one where a process was replaced."""
    redis_bytes: int = 0
    """`used_memory_peak`."""
    log_bytes: int = 0
    """Of the journal's write-ahead log."""


class Follower:
    """Entered while the job runs; `producer_pid` may change when the job is continued."""

    def __init__(self, name: str, *, jobs: Path, output: Path, server: Server, supervisor_pid: int) -> None:
        self.producer_pid = 0
        self.samples: list[Sample] = []
        self.peaks = Peaks()
        self.first_result_s: float | None = None
        self.began_s = time.monotonic()
        self._name, self._jobs, self._output, self._supervisor_pid = name, jobs, output, supervisor_pid
        assert server.process is not None
        self._redis_pid = server.process.pid
        self._client: redis.Redis = server.client()
        self._said_s = self.began_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="follower", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        with suppress(redis.RedisError):  # it may be gone, where the benchmark is ended
            self._look()

    def checkpoint(self) -> Checkpoint | None:
        """Where the job stands."""
        journals = list(self._jobs.glob("*/journal.sqlite"))
        try:
            if journals:
                with JournalReader.open(journals[0]) as journal:
                    return journal.checkpoint()
        except BakehouseError:  # it is being made
            pass
        return None

    def _follow(self) -> None:
        while not self._over.wait(LOOK_S):
            with suppress(redis.RedisError):  # a busy machine; the next look asks again
                self._look()

    def _look(self) -> None:
        checkpoint, now_s = self.checkpoint(), time.monotonic()
        found = self._memory()
        info = self._client.info("memory")
        self.peaks.redis_bytes = max(self.peaks.redis_bytes, info["used_memory_peak"])
        for log in self._jobs.glob("*/journal.sqlite-wal"):
            self.peaks.log_bytes = max(self.peaks.log_bytes, log.stat().st_size)
        if checkpoint is None:
            return
        self.samples.append(Sample(now_s - self.began_s, checkpoint.counts.done, found, info["used_memory"]))
        if self.first_result_s is None and self._output.exists() and self._output.stat().st_size:
            self.first_result_s = now_s - self.began_s
        if now_s - self._said_s >= SAY_S:
            self._said_s = now_s
            self._say()

    def _memory(self) -> dict[str, int]:
        """Resident memory by role, now; notes the peaks."""
        pids = {PRODUCER: self.producer_pid, SUPERVISOR: self._supervisor_pid, REDIS: self._redis_pid}
        try:
            for child in psutil.Process(self._supervisor_pid).children():
                pids[WORKER] = child.pid
        except psutil.NoSuchProcess:
            pass
        found = {role: memory_of(pid) for role, pid in pids.items()}
        for role, memory in found.items():
            self.peaks.processes[role] = max(self.peaks.processes.get(role, 0), memory.peak_bytes)
        return {role: memory.bytes for role, memory in found.items() if memory.bytes}

    def _say(self) -> None:
        last = self.samples[-1]
        before = next((sample for sample in self.samples if sample.t_s >= last.t_s - SAY_S), last)
        rate = (last.done - before.done) / max(1e-3, last.t_s - before.t_s)
        memory = ", ".join(f"{role} {size // MIB} MiB" for role, size in last.bytes.items())
        print(
            f"{self._name} rows: {last.done:,} done after {last.t_s:,.0f} s, {rate:,.0f} requests/s; {memory}",
            file=sys.stderr,
            flush=True,
        )
