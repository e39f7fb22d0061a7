"""Who ran which row from when to when, and what follows from it. Pure; times count from the first row fed."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

TAIL = 0.05


class SimWorker(NamedTuple):
    """A simulated worker: its places, its speed, and from when to when it takes work."""

    name: str
    places: int
    step_s: float
    from_s: float = 0.0
    until_s: float = math.inf


class Span(NamedTuple):
    """One row in one place."""

    worker: str
    began_s: float
    ended_s: float


def makespan_s(spans: Iterable[Span]) -> float:
    """When the last row was done."""
    return max(span.ended_s for span in spans)


def idle_share(spans: Sequence[Span], workers: Iterable[SimWorker], *, rows: tuple[float, float]) -> float:
    """Idle time of all places, as a share, from when the first of two shares of the rows was done to the second."""
    began_s, ended_s = (done_s(spans, share) for share in rows)
    busy_s = sum(_overlap_s(span.began_s, span.ended_s, began_s, ended_s) for span in spans)
    there_s = sum(each.places * _overlap_s(each.from_s, each.until_s, began_s, ended_s) for each in workers)
    return 1.0 - busy_s / there_s if there_s else 0.0


def tail_idle_share(spans: Sequence[Span], workers: Iterable[SimWorker]) -> float:
    """While the last rows end: from when only `TAIL` of them are not done."""
    return idle_share(spans, workers, rows=(1 - TAIL, 1.0))


def tail_begins_s(spans: Sequence[Span]) -> float:
    """When only `TAIL` of the rows are not done."""
    return done_s(spans, 1 - TAIL)


def done_s(spans: Sequence[Span], share: float) -> float:
    """When this share of the rows was done."""
    return sorted(span.ended_s for span in spans)[max(0, round(share * len(spans)) - 1)]


def full_after_s(spans: Iterable[Span], workers: Iterable[SimWorker]) -> float:
    """Until each worker that is there from the start has had all its places busy; infinity if one never has."""
    by_worker: defaultdict[str, list[Span]] = defaultdict(list)
    for span in spans:
        by_worker[span.worker].append(span)
    return max(
        (full_at_s(by_worker[each.name], places=each.places) for each in workers if each.from_s <= 0.0),
        default=math.inf,
    )


def full_at_s(spans: Iterable[Span], *, places: int) -> float:
    """When so many of `spans` ran at once for the first time; infinity if never."""
    return next((at_s for at_s, running in running_over_time(spans) if running >= places), math.inf)


def running_over_time(spans: Iterable[Span]) -> list[tuple[float, int]]:
    """Each moment at which the number of running rows changed, and what it was from then on."""
    changes: defaultdict[float, int] = defaultdict(int)
    for span in spans:
        changes[span.began_s] += 1
        changes[span.ended_s] -= 1
    running, points = 0, []
    for at_s in sorted(changes):
        running += changes[at_s]
        points.append((at_s, running))
    return points


def _overlap_s(one_from_s: float, one_until_s: float, from_s: float, until_s: float) -> float:
    return max(0.0, min(one_until_s, until_s) - max(one_from_s, from_s))
