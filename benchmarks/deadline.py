"""How well the end of a job is told, and whether a deadline that would be missed is said early and can be kept.

A simulated fleet of two workers. A job runs alone, and at each second of its life the end its collector tells is held
against the real one. Then it runs with a deadline that two workers cannot keep: once as it is, once with as many more
workers as are advised, started when the miss is announced.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.fairness import lengths
from benchmarks.report import Bound, finish, print_table
from producer.journal_reader import read_checkpoint
from producer.outlook import Outlook
from producer.status import read_remote
from tests.processes import started_worker
from tests.sharing import MODEL, Jobs, shared_fleet, write_rows
from tests.waiting import wait_until

WORKERS, PLACES = 2, 16
STEP_S = 0.04
RESULTS_PER_S = 27.0
"""About what the two workers give, from which rows are reckoned."""
SHORT = 0.65
"""The deadline that is missed, as a share of what the job takes."""
QUARTERS = (0.1, 0.25, 0.5, 0.75, 0.9)
"""Of a job's life: where the error is shown."""
LOOK_S = 0.5


class Sight(NamedTuple):
    """What the collector said, `t_s` seconds after the job's first sign."""

    t_s: float
    outlook: Outlook


class Life(NamedTuple):
    """One run of the job."""

    took_s: float
    sights: list[Sight]
    late: int
    done: int

    def error_at(self, share: float) -> float | None:
        """How far the end that was told at this share of its life is from the real one, as a share of its life."""
        told = [sight for sight in self.sights if sight.outlook.left_s is not None and sight.t_s <= share * self.took_s]
        if not told:
            return None
        return abs(told[-1].t_s + (told[-1].outlook.left_s or 0.0) - self.took_s) / self.took_s

    @property
    def announced(self) -> Sight | None:
        """When a miss was first told."""
        return next((sight for sight in self.sights if (sight.outlook.margin_s or 0.0) < 0), None)


def main() -> int:
    """Run it and report; 1 when a bound is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0, help="about what the job takes with two workers")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bh-deadline-") as scratch, redirect_stdout(sys.stderr):
        rows = write_rows(Path(scratch) / "in.jsonl", lengths(round(RESULTS_PER_S * arguments.seconds)))
        with fleet(Path(scratch)) as jobs:
            alone = [live(jobs, f"alone-{n}", rows) for n in range(arguments.repeats)]
            within_s = SHORT * statistics.median(life.took_s for life in alone)
            missed = [live(jobs, f"missed-{n}", rows, within_s=within_s) for n in range(arguments.repeats)]
            kept = [rescue(jobs, f"kept-{n}", rows, within_s=within_s) for n in range(arguments.repeats)]
    return report(alone, missed, kept, within_s=within_s)


@contextmanager
def fleet(folder: Path) -> Iterator[Jobs]:
    """A server and two workers of its own."""
    with shared_fleet(folder, workers=WORKERS, places=PLACES, step_s=STEP_S) as jobs:
        yield jobs


def live(
    jobs: Jobs,
    name: str,
    rows: Path,
    *,
    within_s: float | None = None,
    on_sight: Callable[[Outlook], None] = lambda _outlook: None,
) -> Life:
    """Run the job to its end, and look at it meanwhile; `on_sight` is called at each look."""
    by = None if within_s is None else datetime.now(UTC) + timedelta(seconds=within_s)
    options = () if by is None else ("--deadline", by.isoformat())
    client, sights = jobs.server.client(), []
    began_s = time.monotonic()
    with jobs.running(name, rows, *options):
        while (info := read_remote(client, name).get(name, {})).get("state") != "done":
            if (outlook := Outlook.of(info)) is not None:
                sights.append(Sight(time.monotonic() - began_s, outlook))
                on_sight(outlook)
            time.sleep(LOOK_S)
    took_s = time.monotonic() - began_s
    checkpoint = read_checkpoint(jobs.journal_path(name))
    assert checkpoint is not None
    print(f"{name}: {took_s:.0f} s, {checkpoint.counts.late} late", file=sys.stderr)
    return Life(took_s, sights, checkpoint.counts.late, checkpoint.counts.done)


def rescue(jobs: Jobs, name: str, rows: Path, *, within_s: float) -> Life:
    """The same; workers that are advised are started once, when the miss is announced."""
    with ExitStack() as more:

        def heed(outlook: Outlook) -> None:
            needed = outlook.workers_needed
            if needed is not None and not started:
                started.append(needed)
                more.enter_context(start_workers(jobs, needed - WORKERS, name))

        started: list[int] = []
        life = live(jobs, name, rows, within_s=within_s, on_sight=heed)
    wait_until(lambda: jobs.workers() == WORKERS, timeout_s=60, description="the others have left")
    return life


@contextmanager
def start_workers(jobs: Jobs, number: int, name: str) -> Iterator[None]:
    """So many more workers like the others."""
    engine = ("--engine", "sim", "--model", MODEL, "--sim-places", PLACES, "--sim-seconds", STEP_S)
    with started_worker(jobs.server, "--workers", number, *engine, log=jobs.folder / f"{name}-workers.log"):
        yield


def report(alone: list[Life], missed: list[Life], kept: list[Life], *, within_s: float) -> int:
    """The tables, the bounds and the JSON line."""
    errors = {share: [life.error_at(share) for life in alone] for share in QUARTERS}
    announced = [_announced_share(life, within_s) for life in (*missed, *kept)]
    print_tables(errors, missed, kept, within_s=within_s)
    worst = {share: max(1.0 if error is None else error for error in found) for share, found in errors.items()}
    bounds = [
        Bound("worst error of the end told at a quarter of the life", worst[0.25], most=0.15),
        Bound("worst error of the end told at half of the life", worst[0.5], most=0.1),
        Bound("worst error of the end told at three quarters", worst[0.75], most=0.1),
        Bound("latest announcement, as a share of the time", max(share or 1.0 for share in announced), most=0.5),
        Bound("fewest late results, where nothing is done", min(life.late for life in missed), least=1),
        Bound("most late results, with the workers advised", max(life.late for life in kept), most=0),
    ]
    figures: dict[str, Any] = {
        "took_s": {name: [round(life.took_s, 1) for life in side] for name, side in _sides(alone, missed, kept)},
        "errors": {f"{share:g}": found for share, found in errors.items()},
        "announced": announced,
        "late": {name: [life.late for life in side] for name, side in _sides(alone, missed, kept)},
        "within_s": round(within_s, 1),
    }
    return finish(bounds, figures)


def print_tables(
    errors: dict[float, list[float | None]], missed: list[Life], kept: list[Life], *, within_s: float
) -> None:
    """For people."""
    print_table(
        "error of the end told",
        ["at", "each run"],
        [[f"{share:.0%}", ", ".join(_percent(error) for error in found)] for share, found in errors.items()],
    )
    print_table(
        f"a deadline {within_s:.0f} s after the start",
        ["run", "announced at", "workers advised", "took, s", "late results"],
        [
            [
                name,
                _percent(_announced_share(life, within_s)),
                str(life.announced.outlook.workers_needed if life.announced else "-"),
                f"{life.took_s:.0f}",
                f"{life.late:,} of {life.done:,}",
            ]
            for name, side in (("as it is", missed), ("with the workers advised", kept))
            for life in side
        ],
    )


def _sides(alone: list[Life], missed: list[Life], kept: list[Life]) -> list[tuple[str, list[Life]]]:
    return [("alone", alone), ("missed", missed), ("kept", kept)]


def _announced_share(life: Life, within_s: float) -> float | None:
    return None if life.announced is None else life.announced.t_s / within_s


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


if __name__ == "__main__":
    sys.exit(main())
