"""One fault, struck: when, what showed that it did something, and which work it took from whom."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import psutil

from benchmarks.chaos.arena import JOB, Arena
from benchmarks.chaos.node import Node
from common import keys
from common.claim_types import Look
from tests.waiting import wait_until

HOLDER_S = 20.0
ENTRIES_S = 6.0


class NoEffectError(Exception):
    """A fault that did nothing: the run that it belongs to is void."""


@dataclass(frozen=True, kw_only=True)
class Strike:
    """What one fault did."""

    effect: str
    at_s: float
    """Monotonic."""
    lost: Mapping[int, str] = field(default_factory=dict)
    """Micro-batch -> token of each hold that it ended."""
    away_s: float = 0.0
    """How long it kept something standing by itself."""


@dataclass(frozen=True)
class Holder:
    """A worker that holds micro-batches."""

    incarnation: str
    process: psutil.Process
    node: Node


def await_results(arena: Arena, share: float) -> None:
    """Block until the journal has so much of all results. Raises `NoEffectError` when the job is over first."""
    wanted = int(share * arena.shape.rows)
    wait_until(
        lambda: arena.watcher.results >= wanted or arena.collector.ended,
        timeout_s=300 if arena.shape.is_real else 60,
        description=f"{wanted} results",
    )
    if arena.collector.ended:
        raise NoEffectError(f"the job was over before {share:.0%} of it")


def look_at(arena: Arena) -> Look:
    """The job in Redis, now."""
    look = arena.watcher.look()
    if look is None:
        raise NoEffectError("Redis cannot be seen")
    return look


def holds_of(arena: Arena, *incarnations: str) -> dict[int, str]:
    """Micro-batch -> token of what these hold now. Raises `NoEffectError` where that is nothing."""
    held = {
        mb: seen.token or ""
        for mb, seen in look_at(arena).micro_batches.items()
        if seen.st == "HELD" and seen.worker in incarnations
    }
    if not held:
        raise NoEffectError("nothing was held any more")
    return held


def holders(arena: Arena) -> list[Holder]:
    """The workers that hold something now, in the order of their names."""
    seen = look_at(arena).micro_batches.values()
    names = sorted({each.worker for each in seen if each.st == "HELD" and each.worker})
    client = arena.client()
    found = []
    for name in names:
        pid = int(client.hget(keys.worker(name), "pid") or 0)
        node = next((node for node in arena.nodes or [arena.collector] if node.owns(pid)), None)
        if node is not None:
            found.append(Holder(name, psutil.Process(pid), node))
    return found


def await_holder(arena: Arena) -> Holder:
    """One of the workers that hold something. Raises `NoEffectError` when the job is over before any does."""
    found: list[Holder] = []

    def look() -> bool:
        found[:] = [] if arena.collector.ended else holders(arena)
        return bool(found) or arena.collector.ended

    wait_until(look, timeout_s=HOLDER_S, description="a worker holds something")
    if not found:
        raise NoEffectError("no worker holds anything any more")
    return arena.draw.choice(found)


def await_entries(arena: Arena) -> int:
    """Block until results wait in the stream; returns how many entries."""
    client = arena.client()
    count = 0

    def look() -> bool:
        nonlocal count
        count = int(str(client.xlen(keys.results(JOB))))
        return count > 0

    return count if _comes(look, timeout_s=ENTRIES_S) else _nothing("no result waited in the stream")


def await_taken_up(arena: Arena, *, timeout_s: float) -> None:
    """Block until all lost work is held again, by others."""
    if not _comes(lambda: arena.watcher.awaited == 0, timeout_s=timeout_s):
        _nothing(f"{arena.watcher.awaited} micro-batches were not taken up within {timeout_s:g} s")


def _comes(predicate: Callable[[], object], *, timeout_s: float) -> bool:
    try:
        wait_until(predicate, timeout_s=timeout_s, description="an effect")
    except AssertionError:
        return False
    return True


def _nothing(why: str) -> int:
    raise NoEffectError(why)
