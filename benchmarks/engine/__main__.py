"""`python -m benchmarks.engine`: the fleet against the bare engine: same flags, rows and machine, sides in turn.

The fleet is one warm worker a model; its clock runs from the collector's start to its end, as the job's summary gives
it. The bare engine runs the same rows all at once, kept at 1.25x its concurrency by a semaphore, and through vLLM's own
run-batch; heavy-tailed rows also, once and a part of them, in static micro-batches of 32 and of 8 one by one.
"""

import argparse
import sys
import tempfile
from contextlib import ExitStack, redirect_stdout
from pathlib import Path

from benchmarks.engine import findings, gap
from benchmarks.engine.bare import Bare
from benchmarks.engine.findings import Findings
from benchmarks.engine.fleet import Fleet
from benchmarks.engine.measured import Measured
from benchmarks.engine.picture import draw_engine
from benchmarks.engine.setup import Setup
from benchmarks.engine.tracing import trace
from benchmarks.engine.workloads import BY_8, BY_32, FLEET, QUICK_ROWS, Workload, workloads
from benchmarks.report import finish, in_turns, print_table

WARM_UP_PART = 16
ONE_BY_ONE_PARTS = {BY_32: 4, BY_8: 16}
"""They are slow: a quarter and a sixteenth of the rows."""


class Arena:
    """Both sides, their engines up as workloads ask for them."""

    def __init__(self, setup: Setup, folder: Path, open_: ExitStack) -> None:
        self._folder = folder
        self._bare = Bare(setup, folder)
        open_.callback(self._bare.stop)
        self._fleet = Fleet(setup, folder, open_)
        self._started: set[str] = set()

    def measure(self, workload: Workload, *, rows: int, repeats: int) -> Findings:
        """Every side's repeats; which one begins changes from repeat to repeat."""
        self._start(workload)
        source = self._folder / f"{workload.name}.jsonl"
        expected_tokens = workload.write(source, rows)
        for side in workload.sides[:2]:
            self._run(workload, side, source, repeat="warm-up", first=rows // WARM_UP_PART)
        runs: dict[str, list[Measured]] = {side: [] for side in workload.sides}
        for repeat, side in in_turns(workload.sides, repeats=repeats):
            runs[side].append(self._run(workload, side, source, repeat=str(repeat + 1)))
        for side, part in ONE_BY_ONE_PARTS.items() if workload.one_by_one else ():
            runs[side] = [self._run(workload, side, source, repeat="1", first=rows // part)]
        return Findings(workload, rows, expected_tokens, runs)

    def _start(self, workload: Workload) -> None:
        """All that is missing, one after the other: engines that start together on two cores take as long."""
        for name in workload.models:
            if name not in self._started:
                self._fleet.start(name)
                self._bare.start(name)
                self._started.add(name)

    def _run(self, workload: Workload, side: str, rows: Path, *, repeat: str, first: int | None = None) -> Measured:
        salt = f"{workload.name}-{side}-{repeat}".replace(" ", "-")
        if side == FLEET:
            run = self._fleet.run(rows, salt=salt, first=first)
        else:
            run = self._bare.run(side, rows, models=workload.models, salt=salt, first=first)
        print(
            f"{workload.name} {repeat}, {side}: {run.tokens} tokens in {run.seconds:.1f} s, {run.rate:.1f}/s",
            file=sys.stderr,
        )
        return run


def main() -> int:
    """Measure and report, or trace one run of the fleet; 1 when a bound is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--workload", action="append", choices=list(workloads(quick=False)), help="default: all in turn"
    )
    parser.add_argument("--rows", type=int, help="of each workload; default: its own number")
    parser.add_argument("--repeats", type=int, help="of each workload; default: its own number")
    parser.add_argument("--quick", action="store_true", help="a tiny model and few rows: whether it runs, no figures")
    parser.add_argument("--trace", type=Path, help="one run of the fleet alone; requests in flight as JSON lines")
    parser.add_argument("--picture", type=Path, help="draw what was measured")
    arguments = parser.parse_args()
    setup = Setup.quick() if arguments.quick else Setup.full()
    known = workloads(quick=arguments.quick)
    chosen = [known[name] for name in arguments.workload or known]
    with tempfile.TemporaryDirectory(prefix="bh-engine-") as scratch, ExitStack() as open_:
        if arguments.trace is not None:
            rows = arguments.rows or chosen[0].rows
            place = {"folder": Path(scratch), "into": arguments.trace, "picture": arguments.picture}
            return trace(setup, chosen[0], rows=rows, **place)
        open_.enter_context(redirect_stdout(sys.stderr))
        arena = Arena(setup, Path(scratch), open_)
        found = [arena.measure(workload, **_sizes(workload, arguments)) for workload in chosen]
    if arguments.picture is not None:
        draw_engine(arguments.picture, found)
    return report(found)


def _sizes(workload: Workload, arguments: argparse.Namespace) -> dict[str, int]:
    rows = arguments.rows or (QUICK_ROWS if arguments.quick else workload.rows)
    repeats = arguments.repeats or (1 if arguments.quick else workload.repeats)
    return {"rows": rows, "repeats": repeats}


def report(found: list[Findings]) -> int:
    """Tables, bounds and JSON line."""
    print_table("one worker against the bare engine", findings.HEADER, [row for each in found for row in each.rates()])
    print_table("where the time went", gap.HEADER, [row for each in found for row in each.places()])
    print_table("the fleet over the faster of both, in s", gap.PARTS, [each.gaps() for each in found])
    bounds = [bound for each in found for bound in each.bounds()]
    return finish(bounds, {"workloads": {each.workload.name: each.to_json() for each in found}})


if __name__ == "__main__":
    sys.exit(main())
