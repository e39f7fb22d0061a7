"""One job in one order of work, as a user runs it, and what its results tell of it."""

import json
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from common.settings import Order
from tests.processes import run_producer
from tests.servers import Server

LONGEST_S = 3_600


class Ran(NamedTuple):
    """A job that is done."""

    seconds: float
    """From the first line read to the last result in the ordered file, as its summary says."""
    out_of_order: int
    """Most results that were there and waited for an earlier line's."""
    hits: float
    """Share of prompt tokens that came from the prefix cache; 0 where the engine has none."""

    def to_json(self) -> dict[str, float]:
        """Plain data."""
        return {"seconds": round(self.seconds, 3), "out_of_order": self.out_of_order, "hits": round(self.hits, 4)}


def run_job(server: Server, folder: Path, source: Path, *, order: Order, name: str, config: Path | None = None) -> Ran:
    """`producer run` on the workers of `server`; every row must get its good result."""
    output = folder / f"{name}.jsonl"
    place = ("--redis-url", server.url, "--jobs", folder / "jobs", "--job-id", name, "--json")
    knobs = ("--config", config) if config is not None else ()
    ended = run_producer("run", source, "-o", output, *place, *knobs, "--order", order, timeout_s=LONGEST_S)
    if ended.returncode != 0:
        raise SystemExit(f"{name} ended with {ended.returncode}:\n{ended.stderr[-2000:]}")
    with output.open("rb") as file:
        results = [orjson.loads(line) for line in file]
    ended_at = [datetime.fromisoformat(result["meta"]["finished_at"]).timestamp() for result in results]
    usages = [result["response"]["body"]["usage"] for result in results]
    ran = Ran(json.loads(ended.stdout)["elapsed_s"], most_waiting(ended_at), hit_share(usages))
    say(name, ran.to_json())
    return ran


def say(name: str, figures: dict[str, float]) -> None:
    """A run that is done, on stderr: what was measured is not lost with what comes after it."""
    print(f"{name}: {figures}", file=sys.stderr, flush=True)


def turns(orders: Sequence[Order], *, repeats: int) -> list[tuple[int, Order]]:
    """(repeat, order) in the order to measure: another one begins each repeat."""
    return [(repeat, order) for repeat in range(repeats) for order in (orders[::-1] if repeat % 2 else orders)]


def most_waiting(ended_at: Sequence[float]) -> int:
    """The most rows that had ended while an earlier one had not; `ended_at`: of each row, in the input's order."""
    done: set[int] = set()
    frontier = most = 0
    for row in sorted(range(len(ended_at)), key=ended_at.__getitem__):
        done.add(row)
        while frontier in done:
            done.remove(frontier)
            frontier += 1
        most = max(most, len(done))
    return most


def hit_share(usages: Sequence[dict[str, Any]]) -> float:
    """Cached prompt tokens of all prompt tokens, from each answer's `usage`."""
    cached: int = sum((usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0 for usage in usages)
    prompt: int = sum(usage["prompt_tokens"] for usage in usages)
    return cached / max(1, prompt)
