"""What a job came to: the table a command ends with, and the same as JSON. Its figures are the journal's."""

from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console

from producer.counts import Counts
from producer.progress import describe_duration


@dataclass(frozen=True)
class Summary:
    """One job at the end of a command."""

    job: str
    state: str
    exit_code: int
    output: str
    counts: Counts
    elapsed_s: float | None
    """Seconds this command took, from its first line read to its last result; None where it did no work."""
    reason: str | None = None
    """Why it is paused."""

    def to_json(self) -> dict[str, Any]:
        """The same in one flat object."""
        fields = asdict(self)
        counts = fields.pop("counts")
        return {**fields, **counts}


def print_summary(summary: Summary, console: Console) -> None:
    """Two columns; a line for each kind of failure. Long paths stay whole, to be copied."""
    for name, value in rows(summary):
        console.print(f"{name:<24} {value}", markup=False, soft_wrap=True)


def rows(summary: Summary) -> list[tuple[str, str]]:
    """The lines of the table."""
    counts = summary.counts
    total = "still being read" if counts.total is None else f"{counts.total:,}"
    lines = [
        ("job", f"{summary.job} {summary.state}" + (f": {summary.reason}" if summary.reason else "")),
        ("output", summary.output),
        ("requests", total + (f" and {counts.blank:,} blank lines" if counts.blank else "")),
        ("results", f"{counts.done:,}"),
        ("  200", f"{counts.succeeded:,}"),
        *((f"  {kind}", f"{number:,}") for kind, number in sorted(counts.failures.items())),
        ("tokens", f"{counts.prompt_tokens:,} in, {counts.completion_tokens:,} out"),
    ]
    again = {"retried": counts.retried, "redelivered": counts.redelivered, "duplicates": counts.duplicates}
    if any(again.values()):
        lines.append(("again", ", ".join(f"{number:,} {name}" for name, number in again.items() if number)))
    if counts.late:
        lines.append(("late", f"{counts.late:,} results after the deadline"))
    if summary.elapsed_s:
        lines.append(("time", describe_duration(summary.elapsed_s)))
    return lines
