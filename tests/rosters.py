"""Entries of a host's roster that a supervisor has left which is gone."""

import subprocess
import sys
from pathlib import Path

from worker.certificates import Cause

ADDER = """
import pathlib, sys
from worker.certificates import Cause
from worker.roster import Roster
folder, incarnation, pid, cause = sys.argv[1:]
roster = Roster(redis_url="redis://here", folder=pathlib.Path(folder))
roster.add(incarnation, int(pid))
if cause:
    roster.conclude(incarnation, Cause(cause))
"""


def add_elsewhere(folder: Path, incarnation: str, pid: int, *, cause: Cause | None = None) -> None:
    """Note a worker in `folder`, and its end's `cause`, as a process that has ended by now."""
    said = cause.value if cause else ""
    subprocess.run([sys.executable, "-c", ADDER, str(folder), incarnation, str(pid), said], check=True)
