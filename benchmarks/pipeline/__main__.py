"""`python -m benchmarks.pipeline`: rows through Redis, Celery and the journal with an engine that costs nothing.

All sides run the same rows, in turns, each on a server and a worker of its own that are up beforehand. The clock runs
over the whole command that gives the rows and writes the ordered results.
"""

import argparse
import signal
import sys
import tempfile
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path

from benchmarks.pictures import draw_rates
from benchmarks.pipeline import celery_batches
from benchmarks.pipeline.celery_side import measure_celery
from benchmarks.pipeline.fleet import ROW_BYTES, Setup, measure_fleet, write_rows
from benchmarks.pipeline.measured import Measured
from benchmarks.pipeline.tables import print_processes, print_sides
from benchmarks.report import Bound, Compared, finish, in_turns

ROWS = 100_000
CELERY_ROWS = 5_000
"""Of one task a row, which takes minutes for all."""
FLEET, EVENTS, LARGE = "fleet, 32 a message", "the same, events on", "fleet, 128 a message"
CELERY_BATCHES, CELERY_ROW = "Celery, 32 a message, no disk", "Celery, a task a row"
SETUPS = {FLEET: Setup(), EVENTS: Setup(events=True), LARGE: Setup(micro_batch=128)}
SIDES = (*SETUPS, CELERY_BATCHES, CELERY_ROW)
LEAST_PER_S = 10_000
LEAST_WITH_EVENTS_PER_S = 7_500
LEAST_OF_A_TASK_A_ROW = 15.0


def main() -> int:
    """Measure all sides and report; 1 when a bound is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--celery-rows", type=int, default=CELERY_ROWS, help="of these, with one task a row")
    parser.add_argument("--row-bytes", type=int, default=ROW_BYTES)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", action="store_true", help=f"measure one side alone: {FLEET}")
    parser.add_argument("--picture", type=Path, help="where to draw, e.g. docs/pictures/pipeline.png")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))  # by the way of every `with`: no process may be left
    sides = (FLEET,) if arguments.only else SIDES
    with tempfile.TemporaryDirectory(prefix="bh-pipeline-") as scratch, redirect_stdout(sys.stderr):
        measured = measure(Path(scratch), sides, arguments)
    compared = Compared("requests/s", {side: [each.rate for each in all_] for side, all_ in measured.items()})
    if arguments.picture is not None:
        draw_rates(
            arguments.picture, compared, title="Requests through the pipeline, with an engine that costs nothing"
        )
    print_sides(compared, measured)
    print_processes(measured)
    repeats = {side: [each.to_json() for each in all_] for side, all_ in measured.items()}
    figures = {"rows": arguments.rows, "row_bytes": arguments.row_bytes, "sides": repeats}
    return finish(bounds_of(compared), {**figures, **compared.to_json()})


def measure(folder: Path, sides: tuple[str, ...], arguments: argparse.Namespace) -> dict[str, list[Measured]]:
    """Every side's repeats."""
    rows, few = arguments.rows, min(arguments.rows, arguments.celery_rows)
    requests = write_rows(folder / "requests.jsonl", rows, row_bytes=arguments.row_bytes)
    first_requests = write_rows(folder / "first.jsonl", few, row_bytes=arguments.row_bytes)
    measured: dict[str, list[Measured]] = {side: [] for side in sides}
    ways: dict[str, Callable[[Path], Measured]] = {
        CELERY_BATCHES: lambda place: measure_celery(
            "celery_batches",
            place,
            requests,
            rows=rows,
            rows_a_message=celery_batches.SIZE,
            server_options=celery_batches.NO_DISK,
        ),
        CELERY_ROW: lambda place: measure_celery("celery_rows", place, first_requests, rows=few),
    }
    for turn, (repeat, side) in enumerate(in_turns(sides, repeats=arguments.repeats)):
        place = folder / str(turn)
        each = measure_fleet(SETUPS[side], place, requests, rows=rows) if side in SETUPS else ways[side](place)
        measured[side].append(each)
        print(f"repeat {repeat + 1} of {arguments.repeats}, {side}: {each.rate:,.0f} requests/s", file=sys.stderr)
    return measured


def bounds_of(compared: Compared) -> list[Bound]:
    """Those of the sides that were measured."""
    medians = compared.medians
    bounds = [Bound(f"{FLEET}: requests/s", medians[FLEET], least=LEAST_PER_S)]
    if EVENTS in medians:
        bounds.append(Bound(f"{EVENTS}: requests/s", medians[EVENTS], least=LEAST_WITH_EVENTS_PER_S))
    if CELERY_ROW in medians:
        ratio = compared.ratios[CELERY_ROW]
        bounds.append(Bound(f"{FLEET} / {CELERY_ROW}", ratio, least=LEAST_OF_A_TASK_A_ROW))
    return bounds


if __name__ == "__main__":
    sys.exit(main())
