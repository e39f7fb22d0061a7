"""`python -m benchmarks.memory --rows N --rows M`: peak memory by process and Redis, the rate over time, a picture.

The command is killed half-way and given again. What a process grows by counts from the fewest rows to the most.
"""

import argparse
import signal
import subprocess
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path

import redis

from benchmarks.memory.follower import MIB
from benchmarks.memory.inputs import Shape
from benchmarks.memory.run import Figures, run_size, say
from benchmarks.pictures import draw_memory
from benchmarks.report import Bound, Compared, finish, print_table
from common.settings import Settings

GROWTH_MIB = 64
GROWTH_BYTES_A_ROW = 16
WINDOW_MARGIN = 1.2
"""Redis may hold the window and 20 %."""
FIRST_RESULT_S = 60
RESTART_S = 30
STEADINESS = 0.9
STEADY_ROWS = 100_000
"""Fewer end too soon for a rate over time."""
SIZES = [10_000, 1_000_000, 10_000_000]
"""Rows, unless others are asked for."""
LARGE_BYTES = 32 * 1024
LARGE_BASE = 10_000
"""Rows that large ones are compared with."""


def main() -> int:
    """Run each size and report; 1 when a bound is missed or a result is not right."""
    arguments = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))  # by the way of every `with`: no process may be left
    small = [Shape(rows, None) for rows in sorted(set(arguments.rows))]
    large = [Shape(rows, LARGE_BYTES) for rows in sorted({LARGE_BASE, arguments.large})] if arguments.large else []
    series = [run_series(shapes) for shapes in (small, large) if shapes]
    ran = [figures for figures_of_series, _ in series for figures in figures_of_series]
    bounds = [bound for figures_of_series, _ in series for bound in bounds_of(figures_of_series)]
    wrong = [fault for _, faults in series for fault in faults]
    print_table("peaks, MiB", *peaks_of(ran))
    print_table("rate, restart and journal", *paces_of(ran))
    most = next((figures for figures in reversed(ran) if figures.shape.text_bytes is None), None)
    if arguments.picture is not None and most is not None:
        draw_memory(arguments.picture, most.samples, rate=most.rates())
    rates = Compared("requests/s", {figures.shape.name: [figures.shape.rows / figures.seconds] for figures in ran})
    code = finish(bounds, {"sizes": [summary(figures) for figures in ran], "wrong": wrong, **rates.to_json()})
    for fault in wrong:
        print(f"MISSED: {fault}")
    return 1 if wrong else code


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, action="append", default=[], help="small rows; may be given several times")
    parser.add_argument(
        "--large", type=int, nargs="?", const=100_000, metavar="ROWS", help="also rows of 32 KiB in and 32 KiB out"
    )
    parser.add_argument("--picture", type=Path, help="where to draw, e.g. docs/pictures/memory.png")
    arguments = parser.parse_args()
    if not arguments.rows and not arguments.large:
        arguments.rows = SIZES
    return arguments


def run_series(shapes: list[Shape]) -> tuple[list[Figures], list[str]]:
    """Each of `shapes` in a folder of its own, which is removed; and what was wrong."""
    figures, wrong = [], []
    for shape in shapes:
        with tempfile.TemporaryDirectory(prefix="bh-memory-") as scratch:
            try:
                with redirect_stdout(sys.stderr):  # the ends of logs
                    figures.append(run_size(Path(scratch), shape))
            except (AssertionError, subprocess.SubprocessError, redis.RedisError) as fault:
                wrong.append(f"{shape.name} rows: {fault}")
                say(wrong[-1])
    return figures, wrong


def bounds_of(series: list[Figures]) -> list[Bound]:
    """What sizes of one kind of rows must keep."""
    bounds = []
    window_mib = Settings().window_bytes / MIB
    for figures in series:
        name = figures.shape.name
        bounds.append(Bound(f"{name}: Redis, MiB", figures.peaks.redis_bytes / MIB, most=window_mib * WINDOW_MARGIN))
        bounds.append(Bound(f"{name}: first result, s", figures.first_result_s, most=FIRST_RESULT_S))
        bounds.append(Bound(f"{name}: killed half-way to next result, s", figures.received_s, most=RESTART_S))
        bounds.append(Bound(f"{name}: killed half-way to next line fed, s", figures.fed_s, most=RESTART_S))
        if figures.shape.rows >= STEADY_ROWS:
            bounds.append(Bound(f"{name}: rate of the last tenth / median", figures.steadiness(), least=STEADINESS))
    if len(series) < 2:
        return bounds
    base, largest = series[0], series[-1]
    most = GROWTH_MIB + round(GROWTH_BYTES_A_ROW * largest.shape.rows / MIB, 1)
    for role, peak in largest.peaks.processes.items():
        growth = (peak - base.peaks.processes[role]) / MIB
        bounds.append(Bound(f"{base.shape.name} to {largest.shape.name}: {role}, MiB more", growth, most=most))
    return bounds


def peaks_of(ran: list[Figures]) -> tuple[list[str], list[list[str]]]:
    """A row a size: the most that each process held, and Redis."""
    roles = sorted({role for figures in ran for role in figures.peaks.processes})
    rows = [
        [
            figures.shape.name,
            *(f"{figures.peaks.processes.get(role, 0) / MIB:.0f}" for role in roles),
            f"{figures.peaks.redis_bytes / MIB:.1f}",
        ]
        for figures in ran
    ]
    return ["rows", *roles, "used_memory"], rows


def paces_of(ran: list[Figures]) -> tuple[list[str], list[list[str]]]:
    """A row a size: how fast, and how soon again after the kill."""
    head = [
        "rows",
        "s",
        "requests/s",
        "slowest, last tenth",
        "first result",
        "again",
        "journal B/row",
        "log MiB",
        "get s",
    ]
    return head, [_pace_of(figures) for figures in ran]


def _pace_of(figures: Figures) -> list[str]:
    rates = figures.rates() if figures.shape.rows >= STEADY_ROWS else []
    slowest = min((rate for _, rate in rates), default=0)
    return [
        figures.shape.name,
        f"{figures.seconds:,.0f}",
        f"{figures.shape.rows / figures.seconds:,.0f}",
        f"{slowest:,.0f}, {rates[-1][1]:,.0f}" if rates else "",
        f"{figures.first_result_s:.1f} s",
        f"{figures.received_s:.1f} s, fed {figures.fed_s:.1f} s",
        f"{figures.journal_bytes / figures.shape.rows:.0f}",
        f"{figures.peaks.log_bytes / MIB:.0f}",
        f"{figures.get_s:.1f}",
    ]


def summary(figures: Figures) -> dict[str, object]:
    """One size for machines."""
    return {
        "rows": figures.shape.rows,
        "text_bytes": figures.shape.text_bytes,
        "seconds": round(figures.seconds, 1),
        "rates_by_tenth": [round(rate) for _, rate in figures.rates()] if figures.shape.rows >= STEADY_ROWS else [],
        "first_result_s": round(figures.first_result_s, 1),
        "received_s": round(figures.received_s, 1),
        "fed_s": round(figures.fed_s, 1),
        "get_s": round(figures.get_s, 1),
        "journal_bytes_a_row": round(figures.journal_bytes / figures.shape.rows, 1),
        "peak_mib": {role: round(peak / MIB, 1) for role, peak in figures.peaks.processes.items()},
        "redis_peak_mib": round(figures.peaks.redis_bytes / MIB, 1),
    }


if __name__ == "__main__":
    sys.exit(main())
