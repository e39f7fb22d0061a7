"""The two tables of what was measured: how fast each side was, and what its processes used."""

from statistics import median

from benchmarks.pipeline.measured import Measured
from benchmarks.report import Compared, print_table


def print_sides(compared: Compared, measured: dict[str, list[Measured]]) -> None:
    """A line a side."""
    table = [
        [
            side,
            f"{measured[side][0].rows:,}",
            f"{measured[side][0].messages:,}",
            ", ".join(f"{rate:,.0f}" for rate in compared.repeats[side]),
            f"{compared.medians[side]:,.0f}",
            f"{compared.ratios[side]:.2f}" if side in compared.ratios else "",
            f"{median(each.all_cpu_us_a_row for each in measured[side]):,.0f}",
        ]
        for side in measured
    ]
    print_table(
        "requests/s", ["side", "rows", "messages", "of each repeat", "median", "first / this", "CPU us a row"], table
    )


def print_processes(measured: dict[str, list[Measured]]) -> None:
    """What each process used: medians over the repeats."""
    table = []
    for side, repeats in measured.items():
        for role in repeats[0].usage:
            used = [each for each in repeats if role in each.usage]
            figures = (
                f"{median(each.usage[role].cpu_s for each in used):.1f}",
                f"{median(each.usage[role].peak_mib for each in used):.0f}",
                f"{median(each.cpu_us_a_row(role) for each in used):.0f}",
                f"{median(each.cpu_us_a_message(role) for each in used):,.0f}",
            )
            table.append([side, role, *figures])
    print_table("processes", ["side", "process", "CPU s", "peak MiB", "us a row", "us a message"], table)
