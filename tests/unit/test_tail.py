"""The end of a job: micro-batches shrink so early that no worker holds what another one could run."""

import heapq
import random
from collections import deque
from itertools import pairwise

from benchmarks.scale.dispatcher import dispatch
from benchmarks.scale.spans import SimWorker, Span, tail_idle_share
from producer.planner import size_for

PLACES = 8
ROWS_A_WORKER = 200
DEFAULT = 32
AHEAD = 1.25
"""A worker takes a micro-batch while it has fewer requests than this times its places."""
MOST_TAIL_ABOVE = 0.03


def cut(lengths: list[int], *, workers: int, size: int | None = None) -> deque[list[int]]:
    """Micro-batches as the feeder cuts them, or all of one `size`."""
    batches: deque[list[int]] = deque()
    at = 0
    while at < len(lengths):
        most = size or size_for(len(lengths) - at, workers * PLACES, DEFAULT, workers=workers)
        batches.append(lengths[at : at + most])
        at += most
    return batches


def run(batches: deque[list[int]], fleet: list[SimWorker]) -> list[Span]:
    """What workers make of `batches` that each takes while it has room."""
    held: dict[str, deque[int]] = {worker.name: deque() for worker in fleet}
    running = dict.fromkeys(held, 0)
    events = [(0.0, number) for number in range(len(fleet)) for _ in range(2)]
    spans: list[Span] = []
    while events:
        now_s, number = heapq.heappop(events)
        worker = fleet[number % len(fleet)]
        if number >= len(fleet):
            running[worker.name] -= 1
        waiting = held[worker.name]
        if batches and running[worker.name] + len(waiting) < AHEAD * worker.places:
            waiting += batches.popleft()
            heapq.heappush(events, (now_s, number % len(fleet)))  # others have their turn before it takes more
        while waiting and running[worker.name] < worker.places:
            running[worker.name] += 1
            ended_s = now_s + waiting.popleft() * worker.step_s
            spans.append(Span(worker.name, now_s, ended_s))
            heapq.heappush(events, (ended_s, number % len(fleet) + len(fleet)))
    return spans


def lengths_of(seed: int, rows: int) -> list[int]:
    draw = random.Random(seed)
    return [max(1, round(16 * draw.lognormvariate(0.0, 1.0))) for _ in range(rows)]


def test_the_tail_is_nearly_that_of_a_perfect_dispatcher() -> None:
    workers = 4
    fleet = [SimWorker(str(number), PLACES, 0.02) for number in range(workers)]
    shrinking: list[float] = []
    fixed: list[float] = []
    for seed in range(10):
        lengths = lengths_of(seed, ROWS_A_WORKER * workers)
        perfect = tail_idle_share(dispatch(lengths, fleet), fleet)
        for above, size in ((shrinking, None), (fixed, DEFAULT)):
            spans = run(cut(lengths, workers=workers, size=size), fleet)
            assert len(spans) == len(lengths)
            above.append(tail_idle_share(spans, fleet) - perfect)
    assert max(shrinking) <= MOST_TAIL_ABOVE
    assert max(fixed) > MOST_TAIL_ABOVE, "or this fleet would show nothing"


def test_sizes_fall_with_what_is_left() -> None:
    sizes = [len(batch) for batch in cut([1] * 1000, workers=8)]
    assert sum(sizes) == 1000
    assert all(one >= other for one, other in pairwise(sizes))
    assert (sizes[0], sizes[-1]) == (PLACES, 1)
