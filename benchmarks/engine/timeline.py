"""When things happened in a job, as its results say: when each was fed, when its run began, when it was answered."""

import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from benchmarks.engine.measured import Edges


class Row(NamedTuple):
    """One result; times are seconds of the wall clock."""

    model: str
    fed_at: float
    began_at: float
    ended_at: float


def read_timeline(output: Path) -> list[Row]:
    """The rows of an ordered file."""
    with output.open(encoding="utf-8") as file:
        return [_row_of(json.loads(line)["meta"]) for line in file]


def edges_of(rows: Sequence[Row], *, model: str, concurrency: int, last_line_at: float, seconds: float) -> Edges:
    """Of a job that took `seconds`; `model` is the one whose engine is to be full."""
    fed_at = min(row.fed_at for row in rows)
    full_at = full_since([row for row in rows if row.model == model], concurrency=concurrency)
    return Edges(
        first_s=min(row.began_at for row in rows) - fed_at,
        full_s=None if full_at is None else full_at - fed_at,
        settled_s=last_line_at - max(row.ended_at for row in rows),
        outside_s=seconds - (last_line_at - fed_at),
    )


def full_since(rows: Sequence[Row], *, concurrency: int) -> float | None:
    """When so many were in flight for the first time."""
    changes = sorted([(row.began_at, 1) for row in rows] + [(row.ended_at, -1) for row in rows])
    in_flight = 0
    for at, change in changes:
        in_flight += change
        if in_flight >= concurrency:
            return at
    return None


def _row_of(meta: dict[str, object]) -> Row:
    began_at, ended_at = (datetime.fromisoformat(str(meta[name])).timestamp() for name in ("started_at", "finished_at"))
    return Row(str(meta["model"]), began_at - float(str(meta["queue_s"])), began_at, ended_at)
