"""The rows of the scaling benchmark: lognormal lengths from a committed seed, the same for every fleet."""

import random
from collections.abc import Iterable
from pathlib import Path

from benchmarks.rows import SEED, line

MODEL = "scale"
SIGMA = 1.0
MEDIAN_TOKENS = 16


def lengths_of(rows: int) -> list[int]:
    """Tokens of each of the first `rows` rows."""
    draw = random.Random(SEED)
    return [max(1, round(MEDIAN_TOKENS * draw.lognormvariate(0.0, SIGMA))) for _ in range(rows)]


def write_rows(path: Path, lengths: Iterable[int]) -> None:
    """One chat request a row, answered by exactly so many tokens."""
    with path.open("w", encoding="utf-8") as file:
        for number, tokens in enumerate(lengths):
            messages = [{"role": "user", "content": f"Bake loaf {number}."}]
            file.write(line(f"row-{number}", {"model": MODEL, "messages": messages, "max_tokens": tokens}))
