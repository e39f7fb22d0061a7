"""The order of work: how lines that were read ahead go, between intake and planner, on to micro-batches. Pure.

What is fed never depends on it, nor does the order of results: only which request runs beside which. Models take turns
in proportion, since each has workers of its own that must not wait for another model's.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from common.settings import Order

_LONG = 2.0
"""So many times the mean length is long: what begins late must not be."""


class Work(NamedTuple):
    """What the order asks of a request."""

    model: str
    url: str
    prompt: str
    """How its prompt begins."""
    tokens: float
    """Prompt and answer, estimated."""


def arrange(works: Sequence[Work], *, order: Order, places: int | None = None) -> list[int]:
    """The positions of `works` in the order in which they go: each once.

    `prefix`: those of an endpoint that begin alike stand together, whatever the length of what they share. `length`:
    the longest first. `places`: what the fleet runs at once, where nothing comes after these; None: more comes.
    """
    if order == "input":
        return list(range(len(works)))
    queues: defaultdict[str, list[int]] = defaultdict(list)
    for position, work in enumerate(works):
        queues[work.model].append(position)
    turns: list[tuple[float, int]] = []
    for queue in queues.values():
        sort = _by_prefix if order == "prefix" else _by_length
        turns += [((rank + 0.5) / len(queue), at) for rank, at in enumerate(sort(works, queue, places or 0))]
    return [position for _, position in sorted(turns, key=lambda turn: turn[0])]


def _by_length(works: Sequence[Work], queue: list[int], _places: int) -> list[int]:
    return sorted(queue, key=lambda at: -works[at].tokens)


def _by_prefix(works: Sequence[Work], queue: list[int], places: int) -> list[int]:
    """Near the end the few that are far longer than the rest go first, one a place at most."""
    mean = sum(works[at].tokens for at in queue) / len(queue)
    first = [at for at in _by_length(works, queue, 0)[:places] if works[at].tokens > _LONG * mean]
    rest = set(queue).difference(first)
    return first + sorted(rest, key=lambda at: (works[at].url, works[at].prompt, -works[at].tokens, at))
