"""Jobs that share a fleet of simulated workers: their rows, how far each is, and how long one took from end to end."""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from common.errors import RefusedError
from producer.journal_reader import JournalReader
from tests.processes import live_workers, producer_command, read_results, run_producer, started, started_worker
from tests.servers import VALKEY, Server
from tests.waiting import wait_until

MODEL = "shared"


class Took(NamedTuple):
    """A job's time from its first line fed to its last result, and its longest request's."""

    job_s: float
    longest_s: float


def write_rows(path: Path, tokens: Iterable[int]) -> Path:
    """A row for each number of tokens that its answer is to have."""
    with path.open("w", encoding="utf-8") as file:
        for number, limit in enumerate(tokens):
            row = {"custom_id": f"r-{number}", "model": MODEL, "prompt": f"say {number}", "max_tokens": limit}
            file.write(json.dumps(row) + "\n")
    return path


@contextmanager
def shared_fleet(folder: Path, *, workers: int, places: int, step_s: float) -> "Iterator[Jobs]":
    """A server of its own, and `workers` on it that run so many requests each, a token in `step_s`."""
    server = Server(VALKEY, folder / "valkey").start()
    engine = ("--engine", "sim", "--model", MODEL, "--sim-places", places, "--sim-seconds", step_s)
    try:
        with started_worker(server, "--workers", workers, *engine, log=folder / "workers.log"):
            wait_until(lambda: len(live_workers(server)) == workers, timeout_s=60, description="all workers are up")
            yield Jobs(server, folder)
    finally:
        server.stop()


class Jobs:
    """Jobs in one folder, on one server."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self._where = ("--redis-url", server.url, "--jobs", folder / "jobs")

    @contextmanager
    def running(self, name: str, source: Path, *options: object) -> Iterator[None]:
        """`producer run` of `source` as job `name`, told to end with the block."""
        with started(self._command(name, source, options), log=self.folder / f"{name}.log"):
            yield

    def run(self, name: str, source: Path, *options: object) -> Took:
        """The same to its end."""
        ended = run_producer(*self._arguments("run", name, source, options))
        assert ended.returncode == 0, ended.stderr
        return took(self.results(name))

    def enqueue(self, name: str, source: Path, *options: object) -> None:
        """Feed the first window of job `name`, and leave it there."""
        ended = run_producer(*self._arguments("enqueue", name, source, options))
        assert ended.returncode == 0, ended.stderr

    def results(self, name: str) -> list[dict[str, Any]]:
        """What the ordered file of job `name` has."""
        return read_results(self.folder / f"{name}-out.jsonl")

    def journal_path(self, name: str) -> Path:
        """Where job `name` has its journal."""
        return self.folder / "jobs" / name / "journal.sqlite"

    def workers(self) -> int:
        """Workers that are ready."""
        return len(live_workers(self.server))

    def done(self, name: str) -> int:
        """Requests of job `name` that have their result."""
        try:
            with JournalReader.open(self.journal_path(name)) as journal:
                return journal.checkpoint().counts.done
        except RefusedError:
            return 0

    def _command(self, name: str, source: Path, options: tuple[object, ...]) -> list[str]:
        return producer_command(*self._arguments("run", name, source, options))

    def _arguments(self, verb: str, name: str, source: Path, options: tuple[object, ...]) -> tuple[object, ...]:
        return verb, source, "-o", self.folder / f"{name}-out.jsonl", "--job-id", name, *self._where, *options


def took(results: Iterable[dict[str, Any]]) -> Took:
    """How long the job of `results` took."""
    all_meta = [result["meta"] for result in results]
    fed = min(moment(meta["started_at"]) - meta["queue_s"] for meta in all_meta)
    ended = max(moment(meta["finished_at"]) for meta in all_meta)
    return Took(ended - fed, max(meta["latency_s"] for meta in all_meta))


def moment(text: str) -> float:
    """Seconds since the epoch."""
    return datetime.fromisoformat(text).timestamp()
