"""What watching costs: the pipeline with metrics and logs on, and with Celery's events on, against all of them off.

The pipeline of `benchmarks.pipeline` at its default micro-batch size, in turns. Off: no metrics port, and the worker
logs warnings alone. Metrics and logs: both ports are scraped as often as Prometheus does it, and the worker logs a line
a request. Events: as long as Flower runs, workers send them; here its receiver listens.
"""

import argparse
import signal
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path

from benchmarks.pictures import draw_rates
from benchmarks.pipeline.fleet import Setup, measure_fleet, write_rows
from benchmarks.pipeline.measured import Measured
from benchmarks.pipeline.tables import print_processes, print_sides
from benchmarks.report import Bound, Compared, finish, in_turns

ROWS = 100_000
OFF, WATCHED, EVENTS = "all off", "metrics and logs on", "events on"
SETUPS = {
    OFF: Setup(log_level="warning"),
    WATCHED: Setup(metrics=True),
    EVENTS: Setup(log_level="warning", events=True),
}
MOST_OF_WATCHING = 0.03
MOST_OF_EVENTS = 0.25


def main() -> int:
    """Measure all sides and report; 1 when a bound is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--picture", type=Path, help="where to draw, e.g. docs/pictures/watching.png")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))  # by the way of every `with`: no process may be left
    with tempfile.TemporaryDirectory(prefix="bh-watching-") as scratch, redirect_stdout(sys.stderr):
        measured = measure(Path(scratch), rows=arguments.rows, repeats=arguments.repeats)
    compared = Compared("requests/s", {side: [each.rate for each in all_] for side, all_ in measured.items()})
    if arguments.picture is not None:
        draw_rates(arguments.picture, compared, title="What watching costs a pipeline whose engine costs nothing")
    print_sides(compared, measured)
    print_processes(measured)
    sides = {side: [each.to_json() for each in all_] for side, all_ in measured.items()}
    return finish(bounds_of(compared), {"rows": arguments.rows, "sides": sides, **compared.to_json()})


def measure(folder: Path, *, rows: int, repeats: int) -> dict[str, list[Measured]]:
    """Every side's repeats."""
    requests = write_rows(folder / "requests.jsonl", rows)
    measured: dict[str, list[Measured]] = {side: [] for side in SETUPS}
    for turn, (repeat, side) in enumerate(in_turns(tuple(SETUPS), repeats=repeats)):
        each = measure_fleet(SETUPS[side], folder / str(turn), requests, rows=rows)
        measured[side].append(each)
        print(f"repeat {repeat + 1} of {repeats}, {side}: {each.rate:,.0f} requests/s", file=sys.stderr)
    return measured


def bounds_of(compared: Compared) -> list[Bound]:
    """The share of the rate that is lost; `ratios` are of all off to each other side."""
    return [
        Bound("metrics and logs cost, of the rate", 1 - 1 / compared.ratios[WATCHED], most=MOST_OF_WATCHING),
        Bound("events cost, of the rate", 1 - 1 / compared.ratios[EVENTS], most=MOST_OF_EVENTS),
    ]


if __name__ == "__main__":
    sys.exit(main())
