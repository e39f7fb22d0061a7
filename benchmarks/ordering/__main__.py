"""`python -m benchmarks.ordering`: jobs in another order of work against the input's, in turns on the same workers."""

import argparse
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.ordering.job import Ran
from benchmarks.ordering.lengths import CASES, ORDERS, measure_lengths, perfect_s
from benchmarks.ordering.picture import draw_ordering
from benchmarks.ordering.prefixes import CACHES, measure_prefixes
from benchmarks.report import finish, print_table
from common.settings import Order

HEADER = ["workload", "order", "seconds", "/ input's", "most out of order", "cache hits"]
SETS = ("lengths", *CACHES)


class Line(NamedTuple):
    """One workload in one order."""

    workload: str
    order: str
    runs: Sequence[Ran]
    ratios: Sequence[float] = ()
    """Its time over that in the input's order, repeat by repeat."""

    def cells(self) -> list[str]:
        """As text, in the order of `HEADER`."""
        seconds = statistics.median(run.seconds for run in self.runs)
        ratio = f"{statistics.median(self.ratios):.3f}" if self.ratios else ""
        hits = statistics.median(run.hits for run in self.runs)
        most = max(run.out_of_order for run in self.runs)
        return [self.workload, self.order, f"{seconds:.1f}", ratio, f"{most:,}", f"{hits:.1%}" if hits else "-"]

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "workload": self.workload,
            "order": self.order,
            "ratio": round(statistics.median(self.ratios), 4) if self.ratios else None,
            "runs": [run.to_json() for run in self.runs],
        }


def main() -> int:
    """Measure and report. There is no bound: what brings nothing is said so, and is off."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=600, help="of a job on the real engine")
    parser.add_argument("--sim-rows", type=int, default=4_000, help="of a job on simulated workers")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a model of noise: shows that the benchmark runs")
    parser.add_argument("--workers", type=int, default=1, help="with the real engine")
    parser.add_argument("--known", choices=CASES, action="append", help="of the lengths; default all")
    parser.add_argument("--only", choices=SETS, action="append", help="lengths, or one size of the prefix cache")
    parser.add_argument("--picture", type=Path, help="draw what was measured")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bh-ordering-") as scratch, redirect_stdout(sys.stderr):
        lines, figures = measure(given, Path(scratch))
    if given.picture is not None:
        draw_ordering(given.picture, {f"{one.workload}, by {one.order}": one.ratios for one in lines if one.ratios})
    return report(lines, figures)


def measure(given: argparse.Namespace, folder: Path) -> tuple[list[Line], dict[str, Any]]:
    """All that was asked for, and what stands beside it."""
    lines: list[Line] = []
    figures: dict[str, Any] = {}
    known = given.known or list(CASES)
    if given.only is None or "lengths" in given.only:
        for case, runs in measure_lengths(folder, known, rows=given.sim_rows, repeats=given.repeats).items():
            lines += lines_of(f"lengths {case}", runs)
        for order in ORDERS if "stated" in known else ():
            perfect = perfect_s(given.sim_rows, longest_first=order == "length")
            figures[f"perfect dispatcher, stated, {order}"] = round(perfect, 3)
    for cache in (cache for cache in CACHES if given.only is None or cache in given.only):
        found = measure_prefixes(
            folder,
            cache=cache,
            rows=given.rows,
            repeats=given.repeats,
            workers=given.workers,
            quick=given.quick,
        )
        figures[f"one engine, {cache} cache"] = found.alone
        lines += lines_of(f"prefixes, {cache} cache", found.fleet)
    return lines, figures


def lines_of(workload: str, runs: Mapping[Order, Sequence[Ran]]) -> list[Line]:
    """A line an order, the input's first."""
    base = [run.seconds for run in runs["input"]]
    found = []
    for order, of_order in runs.items():
        seconds = [run.seconds for run in of_order]
        ratios = [] if order == "input" else [one / other for one, other in zip(seconds, base, strict=True)]
        found.append(Line(workload, order, of_order, ratios))
    return found


def report(lines: list[Line], figures: dict[str, Any]) -> int:
    """Table and JSON line."""
    print_table("the order of work", HEADER, [line.cells() for line in lines])
    beside = [[name, f"{value}"] for name, value in figures.items()]
    print_table("beside it", ["what", "figures"], beside)
    return finish([], {**figures, "jobs": [line.to_json() for line in lines]})


if __name__ == "__main__":
    sys.exit(main())
