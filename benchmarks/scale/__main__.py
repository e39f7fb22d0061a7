"""`python -m benchmarks.scale`: fleets of every size, with a slow worker, and changing; a second job."""

import argparse
import statistics
import sys
import tempfile
from contextlib import ExitStack, redirect_stdout
from pathlib import Path

from benchmarks.report import Bound, Compared, finish, print_table
from benchmarks.scale.figures import HEADER, Figures
from benchmarks.scale.fleet import Fleet
from benchmarks.scale.picture import draw_scale
from benchmarks.scale.rows import lengths_of
from benchmarks.scale.runs import Change, First, first_results, run_changing, run_steady
from tests.servers import VALKEY, Server

WORKERS = 32
PLACES = 8
STEP_S = 0.02
ROWS = 100_000
ROWS_A_WORKER = 900
"""Of the jobs on smaller fleets."""
SLOWNESS = 2.0
LEAST_RATIO = 0.97
MOST_TAIL_ABOVE = 0.03
MOST_FIRST_S = 1.0


def main() -> int:
    """Measure and report; 1 when a bound is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS, help="of the job on the whole fleet")
    parser.add_argument("--rows-a-worker", type=int, default=ROWS_A_WORKER, help="of the other jobs")
    parser.add_argument("--workers", type=int, default=WORKERS, help="of the whole fleet")
    parser.add_argument("--step-s", type=float, default=STEP_S, help="time of a token")
    parser.add_argument("--repeats", type=int, default=7, help="second jobs on the idle fleet")
    parser.add_argument("--picture", type=Path, help="draw what was measured")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bh-scale-") as scratch, redirect_stdout(sys.stderr), ExitStack() as open_:
        folder = Path(scratch)
        server = Server(VALKEY, folder / "valkey").start()
        open_.callback(server.stop)
        fleet = Fleet(server, folder, places=PLACES, step_s=arguments.step_s, open_=open_)
        steady, changed, change = measure(fleet, folder, arguments)
        firsts = first_results(fleet, folder, repeats=arguments.repeats)
    if arguments.picture is not None:
        draw_scale(arguments.picture, steady)
    return report(steady, changed, change, firsts)


def measure(fleet: Fleet, folder: Path, arguments: argparse.Namespace) -> tuple[list[Figures], list[Figures], Change]:
    """The jobs of steady fleets, the whole one last, then those of two others, and what the changing one did."""
    each, whole = arguments.rows_a_worker, arguments.workers
    steady: list[Figures] = []
    sizes = [1 << power for power in range(whole.bit_length()) if 1 << power < whole] or [whole]
    for size in sizes:
        fleet.grow(size)
        lengths = lengths_of(size * each)
        steady.append(run_steady(fleet, folder, lengths, name=f"{size}"))
        if size == sizes[len(sizes) * 2 // 3]:
            slow = fleet.join(1, slowness=SLOWNESS)
            with_slow = run_steady(fleet, folder, lengths, name=f"{size} + 1 slow")
            fleet.leave(slow)
            changing, change = run_changing(fleet, folder, lengths, joining=size)
    fleet.grow(whole)
    steady.append(run_steady(fleet, folder, lengths_of(arguments.rows), name=f"{whole}"))
    return steady, [with_slow, changing], change


def report(steady: list[Figures], changed: list[Figures], change: Change, firsts: list[First]) -> int:
    """Tables, bounds and JSON line."""
    table = [*steady, *changed]
    print_table("the fleet beside a perfect dispatcher", HEADER, [each.cells(steady[0]) for each in table])
    print_table("workers that join and leave", list(Change._fields), [[str(figure) for figure in change]])
    print_table("a second job on the idle fleet", list(First._fields), [[str(s) for s in each] for each in firsts])
    whole = steady[-1]
    name = f"{len(whole.workers)} workers, {len(whole.lengths):,} rows"
    second = Compared("s", {"a second job's first result": [each.result_s for each in firsts]})
    bounds = [
        Bound(f"{name}: perfect dispatcher's time / the fleet's", whole.ratio, least=LEAST_RATIO),
        Bound(f"{name}: idle share in the last 5 %, above its", whole.tail_above_perfect, most=MOST_TAIL_ABOVE),
        Bound(
            "s from the command to a second job's first result",
            statistics.median(each.result_s for each in firsts),
            most=MOST_FIRST_S,
        ),
    ]
    figures = {
        "jobs": [each.to_json() for each in table],
        "change": change._asdict(),
        "small_jobs": [each._asdict() for each in firsts],
        **second.to_json(),
        "ratios": {each.fleet: round(each.ratio, 4) for each in table},
    }
    return finish(bounds, figures)


if __name__ == "__main__":
    sys.exit(main())
