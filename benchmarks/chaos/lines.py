"""The lines of a chaos job, the same for every run, and what an undisturbed run makes of them."""

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.chaos.shape import MODEL, REAL_ENGINE
from benchmarks.rows import SEED, line
from tests.processes import read_results, run_producer

LONGEST = 3_000
"""Lines there are; a run takes the first so many of them."""
REAL_S = 400.0
POISON = "POISON"
"""In the text of a line that is to end its worker."""


def write_lines(path: Path, rows: int, *, poisonous: Iterable[int] = ()) -> None:
    """The first `rows` lines, with heavy-tailed lengths; those at `poisonous` carry `POISON`."""
    draw = random.Random(SEED)
    marked = set(poisonous)
    with path.open("w", encoding="utf-8") as file:
        for number in range(rows):
            tokens = min(48, max(3, round(16 * draw.lognormvariate(0, 0.6))))
            text = f"{POISON} {number}" if number in marked else f"bake loaf {number} of rye with seeds"
            file.write(line(f"r-{number}", body_of(text, tokens)))


def body_of(text: str, tokens: int) -> dict[str, object]:
    """A chat request for exactly `tokens` tokens, the same at every try."""
    messages = [{"role": "user", "content": text}]
    return {"model": MODEL, "messages": messages, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}


def undisturbed(folder: Path) -> list[dict[str, Any]]:
    """What all `LONGEST` lines come to on the simulated engine when nothing happens, as `lasting` shows it."""
    return _run(folder, LONGEST, "--engine", "sim", "--sim-seconds", 0.0005, "--sim-places", 256)


def undisturbed_real(folder: Path, rows: int) -> list[dict[str, Any]]:
    """The same of the first `rows` lines on the real engine with the small model."""
    return _run(folder, rows, *REAL_ENGINE)


def _run(folder: Path, rows: int, *engine: object) -> list[dict[str, Any]]:
    folder.mkdir()
    source, output = folder / "in.jsonl", folder / "out.jsonl"
    write_lines(source, rows)
    ended = run_producer("run", source, "-o", output, "--jobs", folder / "jobs", *engine, timeout_s=REAL_S)
    assert ended.returncode == 0, ended.stderr[-3000:]
    return [lasting(result) for result in read_results(output)]


def lasting(result: dict[str, Any]) -> dict[str, Any]:
    """`result` without what is new at every run: ids, `meta`, and the engine's own id and time of the answer."""
    response = dict(result["response"])
    response.pop("request_id")
    if isinstance(response["body"], dict):
        response["body"] = {name: value for name, value in response["body"].items() if name not in ("id", "created")}
    kept = {name: value for name, value in result.items() if name not in ("id", "meta")}
    return {**kept, "response": response}
