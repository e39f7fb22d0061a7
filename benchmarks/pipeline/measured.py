"""One repeat of one side: how long its rows took, and what each of its processes used."""

import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.sampling import Sampler, Usage, await_end
from tests.processes import environment

SHOWN_CHARACTERS = 2_000


@dataclass(frozen=True)
class Measured:
    """What it came to."""

    rows: int
    messages: int
    seconds: float
    """Of the whole command that gives the rows and writes the results, its start included."""
    usage: dict[str, Usage]
    events: int = 0
    """Celery's events that a listener received."""
    scrapes: int = 0
    """Pages of metrics that were read."""
    log_bytes: int = 0
    """The worker's log."""

    @property
    def rate(self) -> float:
        """Requests a second."""
        return self.rows / self.seconds

    @property
    def all_cpu_us_a_row(self) -> float:
        """Of all its processes together; unlike the rate, little changed by what else a machine does."""
        return sum(map(self.cpu_us_a_row, self.usage))

    def cpu_us_a_row(self, role: str) -> float:
        """Processor time of a process for each row."""
        return self.usage[role].cpu_s / self.rows * 1e6

    def cpu_us_a_message(self, role: str) -> float:
        """Processor time of a process for each message."""
        return self.usage[role].cpu_s / self.messages * 1e6

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "rows": self.rows,
            "messages": self.messages,
            "seconds": round(self.seconds, 3),
            "cpu_us_a_row": round(self.all_cpu_us_a_row, 1),
            "events": self.events,
            "scrapes": self.scrapes,
            "log_bytes": self.log_bytes,
            "processes": {
                role: {
                    **usage.to_json(),
                    "cpu_us_a_row": round(self.cpu_us_a_row(role), 1),
                    "cpu_us_a_message": round(self.cpu_us_a_message(role), 1),
                }
                for role, usage in self.usage.items()
            },
        }


def run_timed(
    command: Sequence[str], *, role: str, beside: dict[str, int], log: Path, **variables: str
) -> tuple[float, dict[str, Usage]]:
    """Seconds of `command`, and what it (as `role`) and the processes `beside` it used meanwhile."""
    began_s = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=environment(**variables), stdout=output, stderr=output)
    try:
        with Sampler({role: process.pid, **beside}) as sampler:
            await_end(process)
            seconds = time.monotonic() - began_s
    finally:
        process.kill()
        code = process.wait()
    if code != 0:
        raise SystemExit(f"{' '.join(command)} ended with {code}:\n{log.read_text()[-SHOWN_CHARACTERS:]}")
    return seconds, sampler.usage()


def check_results(output: Path, *, rows: int) -> None:
    """As many results as rows, or the figures are of something else."""
    with output.open("rb") as results:
        written = sum(1 for _ in results)
    if written != rows:
        raise SystemExit(f"{written} results for {rows} rows in {output}")
