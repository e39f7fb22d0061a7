"""Jobs with lines that kill their worker: the input, the nodes that run it, and what the journal says of the blame."""

import json
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from producer.suspects import BLAMING
from tests.jobs import only_job
from tests.processes import live_workers, producer_command, run_producer
from tests.servers import Server
from tests.waiting import wait_until

SIMULATED = ("--engine", "sim", "--sim-seconds", "0.02", "--sim-places", "16")
"""A request of 8 tokens takes 0.16 s."""


class Blame(NamedTuple):
    """One loss in the journal that blames its request."""

    seq: int
    armed: bool
    cause: str


def write_poisoned(path: Path, rows: int, poison: dict[int, str]) -> Path:
    """`rows` requests, `r-0` first; what those in `poison` say is given there."""
    texts = (poison.get(n, f"say {n}") for n in range(rows))
    lines = (json.dumps({"custom_id": f"r-{n}", "prompt": text, "max_tokens": 8}) for n, text in enumerate(texts))
    path.write_text("".join(line + "\n" for line in lines))
    return path


def run_job(server: Server, source: Path, folder: Path, *more: object) -> subprocess.CompletedProcess[str]:
    """`producer run` of `source` on whatever workers there are, its output `out.jsonl`."""
    ended = run_producer(*_run(server, source, folder, *more), timeout_s=170)
    print(ended.stderr)
    return ended


def job_command(server: Server, source: Path, folder: Path, *more: object) -> list[str]:
    """The same as a command line."""
    return producer_command(*_run(server, source, folder, *more))


def _run(server: Server, source: Path, folder: Path, *more: object) -> list[object]:
    where = ("-o", folder / "out.jsonl", "--jobs", folder / "jobs", "--redis-url", server.url)
    return ["run", source, *where, *more]


def ask(folder: Path, question: str) -> list[Any]:
    """Rows of the journal of the only job of `folder`."""
    jobs = folder / "jobs"
    with closing(sqlite3.connect(f"file:{jobs / only_job(jobs) / 'journal.sqlite'}?mode=ro", uri=True)) as journal:
        return journal.execute(question).fetchall()


def blames(folder: Path) -> list[Blame]:
    """Every loss that blames its request, by seq."""
    found = ask(folder, "SELECT seq, armed, cause FROM loss ORDER BY seq, armed")
    return [Blame(seq, bool(armed), cause) for seq, armed, cause in found if cause in BLAMING]


def await_workers(server: Server, number: int) -> None:
    """Wait until so many workers are up: the last to die has been started again."""
    wait_until(lambda: len(live_workers(server)) == number, timeout_s=30, description=f"{number} workers are up")
