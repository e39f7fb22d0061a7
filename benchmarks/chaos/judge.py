"""What became of the lines of one run: lost, doubled, wrongly blamed, changed; what must hold in journal and Redis."""

import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from benchmarks.chaos.arena import JOB, Arena
from benchmarks.chaos.lines import lasting
from common import keys
from common.errors import ErrorKind
from tests.processes import read_results

BLAMED = ("self", "outside")
MOST_BLAMED = {"abort": 3, "kill": 5}
"""Blamed losses until a poisonous line is known as one: when its process falls by itself, and when it is killed."""


@dataclass
class Findings:
    """What is wrong with one run; all empty when nothing is."""

    lost: int = 0
    """Lines without a result."""
    doubled: int = 0
    """Results beyond the first of their line."""
    innocents: int = 0
    """Lines called `worker_lost` that did nothing, and blamed losses though no process had died."""
    broken: list[str] = field(default_factory=list)
    """What else must hold and does not."""
    tokens_delivered: int = 0


def judge(arena: Arena, *, undisturbed: list[dict[str, Any]], ends_workers: bool, durable: list[bytes]) -> Findings:
    """Look at file, journal and Redis of a run that is over. `durable`: the file's whole lines at each strike."""
    found = Findings()
    raw = arena.output.read_bytes() if arena.output.exists() else b""
    found.broken += ["lines that were durable have changed" for lines in durable if not raw.startswith(lines)]
    try:
        results = read_results(arena.output) if raw else []
    except (AssertionError, ValueError) as error:
        found.broken.append(f"the ordered file: {error}")
        results = []
    expected = [f"r-{number}" for number in range(arena.shape.rows)]
    counted = Counter(result["custom_id"] for result in results)
    found.lost = len(set(expected) - set(counted))
    found.doubled = sum(count - 1 for count in counted.values())
    if not found.lost and not found.doubled and list(counted) != expected:
        found.broken.append("not in order")
    _judge_answers(found, arena, results, undisturbed)
    with closing(sqlite3.connect(f"file:{arena.journal_path}?mode=ro", uri=True)) as journal:
        _judge_losses(found, arena, journal, ends_workers=ends_workers)
        _judge_journal(found, arena, journal, raw)
    _judge_redis(found, arena)
    return found


def _judge_answers(
    found: Findings, arena: Arena, results: list[dict[str, Any]], undisturbed: list[dict[str, Any]]
) -> None:
    poisonous = {f"r-{number}" for number in arena.poisonous}
    for result in results:
        code = (result["error"] or {}).get("code")
        name = result["custom_id"]
        if name in poisonous:
            if code != ErrorKind.WORKER_LOST:
                found.broken.append(f"{name} is poison and came to {code}")
            continue
        if code == ErrorKind.WORKER_LOST:
            found.innocents += 1
        elif lasting(result) != undisturbed[int(name.removeprefix("r-"))]:
            found.broken.append(f"{name} differs from an undisturbed run")
        body = result["response"]["body"]
        found.tokens_delivered += body.get("usage", {}).get("completion_tokens", 0)


def _judge_losses(found: Findings, arena: Arena, journal: sqlite3.Connection, *, ends_workers: bool) -> None:
    marks = ",".join("?" * len(BLAMED))
    blamed = Counter(seq for (seq,) in journal.execute(f"SELECT seq FROM loss WHERE cause IN ({marks})", BLAMED))
    if not ends_workers:
        found.innocents += len(blamed)
    most = MOST_BLAMED.get(arena.shape.poison or "", 0)
    for seq in arena.poisonous:
        if blamed[seq] > most:
            found.broken.append(f"r-{seq} was blamed {blamed[seq]} times, at most {most}")


def _judge_journal(found: Findings, arena: Arena, journal: sqlite3.Connection, raw: bytes) -> None:
    """I1, I3: the ordered file is what the journal says, line by line, and nothing is open or pending any more."""
    rows = journal.execute("SELECT seq, status, out_offset, out_length FROM result ORDER BY seq, round").fetchall()
    position = 0
    for seq, status, offset, length in rows:
        line = raw[position : position + (length or 0)]
        if offset != position or f'"id":"{JOB}-{seq}"'.encode() not in line or not line.endswith(b"\n"):
            found.broken.append(f"seq {seq} does not stand where the journal says")
            break
        if f'"status_code":{status},'.encode() not in line:
            found.broken.append(f"seq {seq} has another status than in the journal")
        position += length
    if [row[0] for row in rows] != list(range(arena.shape.rows)) or position != len(raw):
        found.broken.append("the ordered file is not what the journal says")
    for what, table in (("open", "micro_batch WHERE open = 1"), ("pending", "pending")):
        (count,) = journal.execute(f"SELECT count(*) FROM {table}").fetchone()
        if count:
            found.broken.append(f"{count} {what} in the journal")


def _judge_redis(found: Findings, arena: Arena) -> None:
    """I8 at the end: of the job only `info` is left, with a lifetime, and it is no live job any more."""
    if arena.verb == "embedded":
        if (arena.jobs / JOB / "redis").exists():
            found.broken.append("the run's own Redis has left its data")
        return
    client = arena.client()
    left = {name.decode() for name in client.scan_iter(match=keys.prefix(JOB) + "*")}
    if left != {keys.info(JOB)}:
        found.broken.append(f"left in Redis: {sorted(left)[:4]}")
    elif client.ttl(keys.info(JOB)) < 0:
        found.broken.append("info has no lifetime")
    if client.hexists(keys.JOBS, JOB):
        found.broken.append("Redis still calls the job live")
