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
    """One row in one place; before that it waited in Redis, then in its worker."""

    worker: str
    began_s: float
    ended_s: float
    fed_s: float = math.inf
    """When it came into Redis; infinity where it never waited there."""
    taken_s: float = math.inf
    """When its worker took it; the same."""


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


def tail_idle_parts(spans: Sequence[Span], workers: Sequence[SimWorker]) -> dict[str, float]:
    """`tail_idle_share` by what there was to run meanwhile: rows that other workers held, rows in Redis, or nothing."""
    began_s, ended_s = tail_begins_s(spans), makespan_s(spans)
    steps: list[tuple[float, int, int]] = []
    for span in spans:
        taken_s = min(span.taken_s, span.began_s)
        lives = ((0, span.began_s, span.ended_s), (1, taken_s, span.began_s), (2, min(span.fed_s, taken_s), taken_s))
        steps += [step for kind, from_s, to_s in lives for step in ((from_s, kind, 1), (to_s, kind, -1))]
    steps += [(max(0.0, each.from_s), 3, each.places) for each in workers]
    steps += [(each.until_s, 3, -each.places) for each in workers]
    now, parts_s, at_s = [0, 0, 0, 0], [0.0, 0.0, 0.0], -math.inf
    for next_s, kind, change in sorted(steps):
        lasted_s = max(0.0, min(next_s, ended_s) - max(at_s, began_s))
        running, held, queued, places = now
        idle = max(0, places - running)
        shares = (min(idle, held), min(max(0, idle - held), queued), max(0, idle - held - queued))
        parts_s = [part_s + lasted_s * share for part_s, share in zip(parts_s, shares, strict=True)]
        now[kind] += change
        at_s = next_s
    there_s = sum(each.places * _overlap_s(each.from_s, each.until_s, began_s, ended_s) for each in workers)
    names = ("held_elsewhere", "in_redis", "nothing_left")
    return {name: part_s / there_s if there_s else 0.0 for name, part_s in zip(names, parts_s, strict=True)}


def _overlap_s(one_from_s: float, one_until_s: float, from_s: float, until_s: float) -> float:
    return max(0.0, min(one_until_s, until_s) - max(one_from_s, from_s))
