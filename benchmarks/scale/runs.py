"""The runs: a job on a fleet that stays as it is, one on a fleet that changes, small ones on an idle fleet."""

import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.scale.figures import Figures
from benchmarks.scale.fleet import Fleet
from benchmarks.scale.job import Job
from benchmarks.scale.spans import SimWorker, Span, full_at_s

JOIN_AT, LEAVE_AT = 0.1, 0.5
"""Shares of the rows that are done."""
SMALL_JOB_ROWS = 64


class Change(NamedTuple):
    """What workers that came and went did."""

    joined: int
    left: int
    busy_after_s: float | None
    """From when a joiner was ready until it had all its places busy, the longest; None: one never had."""
    left_after_s: float
    """From SIGTERM to the end of those who left."""


class First(NamedTuple):
    """What a small job on an idle fleet took; seconds from the command on."""

    fed_s: float
    """To the first row fed."""
    result_s: float
    """To the first result in the ordered file."""
    cpu_s: float
    """Processor time of the command itself: imports above all."""


def run_steady(fleet: Fleet, folder: Path, lengths: Sequence[int], *, name: str) -> Figures:
    """A job on all workers that are there."""
    job = Job(fleet, folder, name=_job_id(name), lengths=lengths)
    return _told(Figures.of(name, job.finish(), lengths, fleet.workers()))


def run_changing(fleet: Fleet, folder: Path, lengths: Sequence[int], *, joining: int) -> tuple[Figures, Change]:
    """A job in the middle of which so many workers join, and then the largest node leaves by SIGTERM."""
    steady = list(fleet.nodes)
    leaving = max(steady, key=lambda node: len(node.ready_at))
    job = Job(fleet, folder, name=_job_id("changing"), lengths=lengths)
    job.await_done(JOIN_AT)
    late = fleet.join(joining)
    job.await_done(LEAVE_AT)
    told_at = time.time()
    fleet.leave(leaving)
    left_at = time.time()
    finished = job.finish()
    staying = [worker for node in steady if node is not leaving for worker in fleet.workers_of(node)]
    gone = fleet.workers_of(leaving, until_s=left_at - finished.fed_at)
    joined = fleet.workers_of(late, since=finished.fed_at)
    figures = Figures.of(
        f"{len(staying) + len(gone)}, +{len(joined)}, -{len(gone)}",
        finished,
        lengths,
        [*staying, *gone, *joined],
    )
    busy_s = max(_full_s(figures.spans, each) - each.from_s for each in joined)
    change = Change(
        len(joined), len(gone), None if math.isinf(busy_s) else round(busy_s, 3), round(left_at - told_at, 3)
    )
    return _told(figures), change


def first_results(fleet: Fleet, folder: Path, *, repeats: int) -> list[First]:
    """Small jobs on an idle fleet, one after the other."""
    lengths, firsts = [1] * SMALL_JOB_ROWS, []
    for number in range(repeats):
        job = Job(fleet, folder, name=f"small-{number}", lengths=lengths)
        job.await_first_line()
        result_s = time.monotonic() - job.began_s
        finished = job.finish()
        fed_s = finished.fed_at - job.began_at
        firsts.append(First(round(fed_s, 3), round(result_s, 3), round(finished.cpu.seconds["collector"], 2)))
    return firsts


def _full_s(spans: Sequence[Span], worker: SimWorker) -> float:
    return full_at_s([span for span in spans if span.worker == worker.name], places=worker.places)


def _job_id(name: str) -> str:
    return "on-" + name.replace(" + ", "-and-").replace(" ", "-")


def _told(figures: Figures) -> Figures:
    print(f"  {figures.to_json()}", file=sys.stderr)
    return figures
