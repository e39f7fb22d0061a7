"""The perfect greedy dispatcher: rows in the order of the input, each to the place that is free first, at once.

It knows what the fleet knows: neither how long a row will take nor how fast a worker is.
"""

import heapq
from collections.abc import Iterable, Sequence

from benchmarks.scale.spans import SimWorker, Span


def dispatch(lengths: Iterable[int], workers: Sequence[SimWorker]) -> list[Span]:
    """One span a row of `lengths` tokens. A worker that leaves ends what it runs."""
    places = [worker for worker in workers for _ in range(worker.places)]
    free = [(worker.from_s, number) for number, worker in enumerate(places)]
    heapq.heapify(free)
    spans: list[Span] = []
    for tokens in lengths:
        free_s, number = heapq.heappop(free)
        while free_s >= places[number].until_s:
            free_s, number = heapq.heappop(free)
        ended_s = free_s + tokens * places[number].step_s
        spans.append(Span(places[number].name, free_s, ended_s))
        heapq.heappush(free, (ended_s, number))
    return spans
