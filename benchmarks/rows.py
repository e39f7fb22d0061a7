"""Rows for benchmarks: seeded, so that every side and every repeat runs the same ones."""

import json
import math
import random
from pathlib import Path

SEED = 20261130
WORDS = (
    "oven",
    "flour",
    "yeast",
    "butter",
    "sugar",
    "salt",
    "water",
    "milk",
    "honey",
    "cream",
    "crumb",
    "dough",
    "glaze",
)


def write_heavy_tailed(path: Path, rows: int, *, model: str, median_tokens: int = 32, longest_tokens: int = 400) -> int:
    """Chat rows with lognormal output lengths (longest >= 10 x median), `ignore_eos`; returns all output tokens."""
    random_ = random.Random(SEED)
    lengths = [min(longest_tokens, max(1, round(median_tokens * math.exp(random_.gauss(0, 1))))) for _ in range(rows)]
    lengths[random_.randrange(rows)] = longest_tokens
    with path.open("w", encoding="utf-8") as file:
        for number, length in enumerate(lengths):
            text = f"Write about {' '.join(random_.choices(WORDS, k=12))}, number {number}."
            body = {
                "model": model,
                "messages": [{"role": "user", "content": text}],
                "max_tokens": length,
                "temperature": 0,
                "ignore_eos": True,
            }
            file.write(line(f"row-{number}", body))
    return sum(lengths)


def write_padded(path: Path, rows: int, *, model: str, row_bytes: int = 1024) -> None:
    """Rows of `row_bytes` each for an engine that costs nothing."""
    random_ = random.Random(SEED)
    with path.open("w", encoding="utf-8") as file:
        for number in range(rows):
            words = " ".join(random_.choices(WORDS, k=row_bytes // 5))
            body = {"model": model, "messages": [{"role": "user", "content": ""}], "max_tokens": 8}
            empty = len(line(f"row-{number:07d}", body))
            body["messages"] = [{"role": "user", "content": words[: max(0, row_bytes - empty)]}]
            file.write(line(f"row-{number:07d}", body))


def line(custom_id: str, body: dict[str, object]) -> str:
    """One OpenAI batch line, LF included."""
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", "body": body}) + "\n"
