"""How jobs share a fleet: what a small job pays for the large one before it, and the shares of three over time.

Two simulated workers of 32 places. A job of 100 rows runs alone and behind one of 1,000,000 rows, in turns; its time
goes from its first line fed to its last result. Then three jobs of 1,000,000 rows begin one after the other, and the
first one is ended; each second it is read from their journals how far they are. No large job runs to its end.
"""

import argparse
import math
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.pictures import draw_shares
from benchmarks.report import Bound, finish, print_table
from benchmarks.rows import SEED
from tests.sharing import Jobs, Took, shared_fleet, write_rows
from tests.waiting import wait_until

WORKERS, PLACES = 2, 32
STEP_S = 0.05
MEDIAN_TOKENS, LONGEST_TOKENS = 20, 120
LARGE_ROWS, SMALL_ROWS = 1_000_000, 100
UNDER_WAY = 500
"""Results of the large job before a small one begins behind it."""
APART = 0.15
"""A job's share may be so much of an equal one above or below it."""
SETTLED_S = 5.0
"""So long after a change shares are not counted: a request takes up to six seconds."""
NAMES = ("first", "second", "third")


class Sample(NamedTuple):
    """Results of each job, `t_s` seconds after the first one began."""

    t_s: float
    done: tuple[int, ...]


@dataclass(frozen=True)
class Phase:
    """A stretch of time in which the same jobs ran, and the results of each in it."""

    jobs: tuple[int, ...]
    begin_s: float
    end_s: float
    done: tuple[int, ...]

    @property
    def shares(self) -> tuple[float, ...]:
        """Of what was done in this phase."""
        return tuple(done / max(1, sum(self.done)) for done in self.done)

    @property
    def worst(self) -> float:
        """How far the share of one that ran is from an equal one, as a part of it."""
        return max(abs(self.shares[job] * len(self.jobs) - 1) for job in self.jobs)


def main() -> int:
    """Run it and report; 1 when a bound is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rows", type=int, default=LARGE_ROWS, help="of a large job")
    parser.add_argument("--phase-s", type=float, default=15.0, help="between two changes of who runs")
    parser.add_argument("--picture", type=Path, help="where to draw the shares, e.g. docs/pictures/fairness.png")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bh-fairness-") as scratch, redirect_stdout(sys.stderr):
        folder = Path(scratch)
        large = write_rows(folder / "large.jsonl", lengths(arguments.rows))
        small = write_rows(folder / "small.jsonl", lengths(SMALL_ROWS))
        with fleet(folder / "small") as jobs:
            alone, behind = compare(jobs, large, small, repeats=arguments.repeats)
        with fleet(folder / "shares") as jobs:
            samples, phases = share(jobs, large, phase_s=arguments.phase_s)
    if arguments.picture is not None:
        draw_shares(arguments.picture, [(s.t_s, s.done) for s in samples], NAMES)
    return report(alone, behind, samples, phases)


def lengths(rows: int) -> Iterator[int]:
    """Tokens of each answer: lognormal, seeded, the longest six times the median."""
    draw = random.Random(SEED)
    for _ in range(rows):
        yield min(LONGEST_TOKENS, max(1, round(MEDIAN_TOKENS * draw.lognormvariate(0.0, 1.0))))


@contextmanager
def fleet(folder: Path) -> Iterator[Jobs]:
    """A server and workers of its own."""
    folder.mkdir()
    with shared_fleet(folder, workers=WORKERS, places=PLACES, step_s=STEP_S) as jobs:
        yield jobs


def compare(jobs: Jobs, large: Path, small: Path, *, repeats: int) -> tuple[list[Took], list[Took]]:
    """The small job alone, then behind the large one."""
    alone = [jobs.run(f"alone-{repeat}", small) for repeat in range(repeats)]
    with jobs.running("large", large):
        wait_until(lambda: jobs.done("large") >= UNDER_WAY, timeout_s=300, description="the large job is under way")
        behind = [jobs.run(f"behind-{repeat}", small) for repeat in range(repeats)]
    return alone, behind


def share(jobs: Jobs, large: Path, *, phase_s: float) -> tuple[list[Sample], list[Phase]]:
    """Three jobs that begin one after the other; then the first one ends."""
    samples: list[Sample] = []
    phases: list[Phase] = []
    began_s = time.monotonic()

    def watch(running: Sequence[int]) -> None:
        """Sample a phase: until all of `running` have begun, and for `phase_s` from when they have settled."""
        begin_s = math.inf
        while not samples or samples[-1].t_s < begin_s + SETTLED_S + phase_s:
            samples.append(Sample(time.monotonic() - began_s, tuple(jobs.done(name) for name in NAMES)))
            if all(samples[-1].done[job] for job in running):
                begin_s = min(begin_s, samples[-1].t_s)
            time.sleep(1.0)
        counted = [sample for sample in samples if sample.t_s >= begin_s + SETTLED_S]
        first, last = counted[0], counted[-1]
        done = tuple(after - before for before, after in zip(first.done, last.done, strict=True))
        phases.append(Phase(tuple(running), first.t_s, last.t_s, done))

    with ExitStack() as others:
        with jobs.running(NAMES[0], large):
            watch([0])
            others.enter_context(jobs.running(NAMES[1], large))
            watch([0, 1])
            others.enter_context(jobs.running(NAMES[2], large))
            watch([0, 1, 2])
        watch([1, 2])
    return samples, phases


def report(alone: list[Took], behind: list[Took], samples: list[Sample], phases: list[Phase]) -> int:
    """The tables, the bounds and the JSON line."""
    longest_s = max(took.longest_s for took in (*alone, *behind))
    alone_s, worst_s = statistics.median(took.job_s for took in alone), max(took.job_s for took in behind)
    print_table(
        "a job of 100 rows, seconds",
        ["", "of each repeat", "longest request"],
        [
            [name, ", ".join(f"{took.job_s:.1f}" for took in side), f"{max(took.longest_s for took in side):.1f}"]
            for name, side in (("alone", alone), ("behind the large job", behind))
        ],
    )
    print_table("shares of results", ["seconds", *NAMES], [row_of(phase) for phase in phases])
    crowded = next(phase for phase in phases if len(phase.jobs) == len(NAMES))
    bounds = [
        Bound("slowest behind, s, against 2 x alone + the longest request", worst_s, most=2 * alone_s + longest_s),
        Bound("three jobs: farthest share from a third, as a part of it", crowded.worst, most=APART),
    ]
    figures: dict[str, Any] = {
        "alone": [took._asdict() for took in alone],
        "behind": [took._asdict() for took in behind],
        "phases": [{"jobs": phase.jobs, "done": phase.done, "shares": phase.shares} for phase in phases],
        "samples": samples,
    }
    return finish(bounds, figures)


def row_of(phase: Phase) -> list[str]:
    """One line of the table."""
    shares = [f"{share:.1%}" if job in phase.jobs else "-" for job, share in enumerate(phase.shares)]
    return [f"{phase.begin_s:.0f} to {phase.end_s:.0f}", *shares]


if __name__ == "__main__":
    sys.exit(main())
