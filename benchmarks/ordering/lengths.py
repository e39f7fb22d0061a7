"""Longest first: simulated workers, answers of lognormal lengths. What is gained is at the job's end alone.

Where requests state how long their answers are at most, and get as long (`stated`); and where each answer ends by
itself, at a length that nothing foretells (`unknown`). A perfect dispatcher in the input's order gives the scale.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.ordering.job import Ran, run_job, turns
from benchmarks.rows import line
from benchmarks.scale.dispatcher import dispatch
from benchmarks.scale.rows import MODEL, lengths_of
from benchmarks.scale.spans import SimWorker, makespan_s
from common.settings import Order
from tests.processes import started_worker
from tests.servers import VALKEY, Server

WORKERS, PLACES, STEP_S = 4, 8, 0.02
ORDERS: tuple[Order, ...] = ("input", "length")
PROFILES = {"stated": "token", "unknown": "heavy"}
UNKNOWN_LIMIT = 400


def measure_lengths(folder: Path, *, rows: int, repeats: int) -> dict[str, dict[Order, list[Ran]]]:
    """By what is known of lengths, and by order: each repeat."""
    found: dict[str, dict[Order, list[Ran]]] = {}
    lengths = lengths_of(rows)
    for known, profile in PROFILES.items():
        found[known] = {order: [] for order in ORDERS}
        source = folder / f"{known}.jsonl"
        _write(source, lengths if known == "stated" else [UNKNOWN_LIMIT] * rows)
        with ExitStack() as open_:
            server = Server(VALKEY, folder / f"valkey-{known}").start()
            open_.callback(server.stop)
            engine = ("--engine", "sim", "--sim-profile", profile, "--sim-places", PLACES, "--sim-seconds", STEP_S)
            for number in range(WORKERS):
                log = folder / f"worker-{known}-{number}.log"
                open_.enter_context(started_worker(server, "--model", MODEL, *engine, log=log))
            for repeat, order in turns(ORDERS, repeats=repeats):
                name = f"{known}-{order}-{repeat}"
                found[known][order].append(run_job(server, folder, source, order=order, name=name))
    return found


def perfect_s(rows: int, *, longest_first: bool) -> float:
    """The time of a perfect dispatcher for the stated lengths."""
    lengths = lengths_of(rows)
    fleet = [SimWorker(str(number), PLACES, STEP_S) for number in range(WORKERS)]
    return makespan_s(dispatch(sorted(lengths, reverse=True) if longest_first else lengths, fleet))


def _write(path: Path, limits: Sequence[int]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for number, tokens in enumerate(limits):
            messages = [{"role": "user", "content": f"Bake loaf {number}."}]
            file.write(line(f"row-{number}", {"model": MODEL, "messages": messages, "max_tokens": tokens}))
