"""What is run: each workload's rows, from a committed seed, and the sides that can run them."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.engine.setup import EMBEDDER, GENERATOR
from benchmarks.rows import CHAT, write_heavy_tailed, write_long, write_mixed, write_prefixes

FLEET, AT_ONCE, KEPT, RUN_BATCH, BY_32, BY_8 = "fleet", "all at once", "kept at 1.25x", "run-batch", "by 32", "by 8"
QUICK_ROWS = 48
PREFIXES, PREFIX_WORDS = 20, 362
"""About 400 tokens, three whole blocks of the KV cache on CPU: a shorter prefix is cached in part or not at all."""
LONG_WORDS = (500, 1_500)


@dataclass(frozen=True)
class Workload:
    """One kind of job."""

    name: str
    what: str
    rows: int
    repeats: int
    write: Callable[[Path, int], int]
    """Writes so many rows to a file and returns all output tokens."""
    models: tuple[str, ...] = (GENERATOR,)
    sides: tuple[str, ...] = (FLEET, AT_ONCE, KEPT, RUN_BATCH)
    one_by_one: bool = False
    """Whether a part of it is run in static micro-batches, too."""


def workloads(*, quick: bool) -> dict[str, Workload]:
    """By name; `quick`: short prompts for a small context."""
    share = 8 if quick else 1
    fewest, most = LONG_WORDS
    kinds = (
        Workload(
            name="heavy",
            what="chat rows with heavy-tailed answers",
            rows=1_000,
            repeats=3,
            write=partial(write_heavy_tailed, model=GENERATOR),
            one_by_one=True,
        ),
        Workload(
            name="prefixes",
            what=f"{PREFIXES} shared prefixes, short answers",
            rows=1_000,
            repeats=2,
            write=partial(
                write_prefixes, model=GENERATOR, prefixes=PREFIXES, prefix_words=PREFIX_WORDS // share, tokens=4
            ),
        ),
        Workload(
            name="long",
            what="long prompts, short answers",
            rows=32,
            repeats=2,
            write=partial(write_long, model=GENERATOR, words=(fewest // share, most // share), tokens=16),
        ),
        Workload(
            name="mixed",
            what="heavy-tailed answers, every other row an embedding of another model",
            rows=300,
            repeats=2,
            write=partial(write_mixed, model=GENERATOR, embedder=EMBEDDER),
            models=(GENERATOR, EMBEDDER),
            sides=(FLEET, AT_ONCE, KEPT),
        ),
    )
    return {kind.name: kind for kind in kinds}


def salted(rows: Path, target: Path, *, salt: str, model: str | None = None, first: int | None = None) -> Path:
    """`rows` once more, of one model or all, with a salt that lets no other run's cached prefixes serve them."""
    with rows.open(encoding="utf-8") as source, target.open("w", encoding="utf-8") as file:
        for row in map(json.loads, list(source)[:first]):
            if row["url"] == CHAT:
                row["body"]["cache_salt"] = salt
            if model in (None, row["body"]["model"]):
                file.write(json.dumps(row) + "\n")
    return target
