"""Longest first: simulated workers, answers of lognormal lengths. What is gained is at the job's end alone.

Where requests state how long their answers are at most, and get as long (`stated`); where none does, and each task has
answers of its own length, in a window so small that some have come before the last lines are arranged (`by task`); and
where nothing foretells them (`unknown`).
"""

import random
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from benchmarks.ordering.job import Ran, run_job, turns
from benchmarks.rows import SEED, line
from benchmarks.scale.dispatcher import dispatch
from benchmarks.scale.rows import MODEL, lengths_of
from benchmarks.scale.spans import SimWorker, makespan_s
from common.settings import Order
from tests.processes import started_worker
from tests.servers import VALKEY, Server

WORKERS, PLACES, STEP_S = 4, 8, 0.02
ORDERS: tuple[Order, ...] = ("input", "length")
UNKNOWN_LIMIT = 400
TASK_WORDS = (4, 4, 8, 8, 16, 16, 32, 128)
"""Words of an answer, of each task."""
TEXT_CHARACTERS = 800
SMALL_WINDOW = 256


class Case(NamedTuple):
    """What is known of lengths."""

    profile: str
    """Of the simulated engine."""
    bodies: Callable[[int], list[dict[str, object]]]
    """So many requests."""
    window: int | None = None


def measure_lengths(
    folder: Path, cases: Sequence[str], *, rows: int, repeats: int
) -> dict[str, dict[Order, list[Ran]]]:
    """By what is known of lengths, and by order: each repeat."""
    found: dict[str, dict[Order, list[Ran]]] = {}
    for known in cases:
        case = CASES[known]
        place = folder / known.replace(" ", "-")
        place.mkdir()
        source = place / "rows.jsonl"
        with source.open("w", encoding="utf-8") as file:
            file.writelines(line(f"row-{number}", body) for number, body in enumerate(case.bodies(rows)))
        config = place / "config.yaml"
        config.write_text("{}" if case.window is None else f"window_requests: {case.window}")
        found[known] = _run(place, source, config, profile=case.profile, repeats=repeats)
    return found


def perfect_s(rows: int, *, longest_first: bool) -> float:
    """The time of a perfect dispatcher for the stated lengths."""
    lengths = lengths_of(rows)
    fleet = [SimWorker(str(number), PLACES, STEP_S) for number in range(WORKERS)]
    return makespan_s(dispatch(sorted(lengths, reverse=True) if longest_first else lengths, fleet))


def _run(folder: Path, source: Path, config: Path, *, profile: str, repeats: int) -> dict[Order, list[Ran]]:
    runs: dict[Order, list[Ran]] = {order: [] for order in ORDERS}
    with ExitStack() as open_:
        server = Server(VALKEY, folder / "valkey").start()
        open_.callback(server.stop)
        engine = ("--engine", "sim", "--sim-profile", profile, "--sim-places", PLACES, "--sim-seconds", STEP_S)
        for number in range(WORKERS):
            log = folder / f"worker-{number}.log"
            open_.enter_context(started_worker(server, "--model", MODEL, *engine, log=log))
        for repeat, order in turns(ORDERS, repeats=repeats):
            name = f"{order}-{repeat}"
            runs[order].append(run_job(server, folder, source, order=order, name=name, config=config))
    return runs


def _stated(rows: int) -> list[dict[str, object]]:
    return [_limited(f"Bake loaf {number}.", tokens) for number, tokens in enumerate(lengths_of(rows))]


def _unknown(rows: int) -> list[dict[str, object]]:
    return [_limited(f"Bake loaf {number}.", UNKNOWN_LIMIT) for number in range(rows)]


def _by_task(rows: int) -> list[dict[str, object]]:
    """Texts as long in characters: their words alone, which the engine repeats, make the answer long."""
    draw = random.Random(SEED)
    return [_chat(_task_text(draw.randrange(len(TASK_WORDS)), draw, number)) for number in range(rows)]


def _task_text(task: int, draw: random.Random, number: int) -> str:
    words = max(1, min(TEXT_CHARACTERS // 4, round(TASK_WORDS[task] * draw.lognormvariate(0.0, 0.3))))
    text = f"task-{task}-".ljust(70, "_") + f"loaf-{number}" + " w" * (words - 1)
    return text.ljust(TEXT_CHARACTERS, "_")


def _limited(text: str, limit: int) -> dict[str, object]:
    return {**_chat(text), "max_tokens": limit}


def _chat(text: str) -> dict[str, object]:
    return {"model": MODEL, "messages": [{"role": "user", "content": text}]}


CASES = {
    "stated": Case("token", _stated),
    "by task": Case("token", _by_task, SMALL_WINDOW),
    "unknown": Case("heavy", _unknown),
}
