"""How a run of a collector ended, and what a finished job's command says of it."""

from dataclasses import dataclass
from typing import Literal

from common.errors import ErrorKind, ExitCode
from producer.counts import Counts
from producer.journal_reader import Checkpoint
from producer.steering import JobState

Status = Literal["in_progress", "paused", "cancelling", "completed", "failed", "cancelled"]
REFUSED = (
    ErrorKind.INVALID_JSON,
    ErrorKind.INVALID_REQUEST,
    ErrorKind.LINE_TOO_LONG,
    ErrorKind.DUPLICATE_CUSTOM_ID,
    ErrorKind.MODEL_NOT_FOUND,
)
"""Kinds of the reader: the line never became a request."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended without an error."""

    counts: Counts
    exit_code: int
    state: JobState
    """`done`, `paused`, or another one: what there was room for was fed."""
    waiting_reason: str | None
    """What an unfinished job waits for, as far as this run saw."""
    cancelled: bool = False
    """Whether a cancel ended it."""

    @property
    def status(self) -> Status:
        """The state in OpenAI's words."""
        return status_of(self.state, self.counts, cancelled=self.cancelled)


def ended(checkpoint: Checkpoint) -> Outcome:
    """How a job that is done came to its end."""
    cancelled = checkpoint.steering.cancelled
    return Outcome(checkpoint.counts, checkpoint.exit_code or 0, "done", None, cancelled=cancelled)


def status_of(state: JobState, counts: Counts, *, cancelled: bool = False) -> Status:
    """A job's state in OpenAI's words, and paused; failed: not one line could become a request."""
    if state != "done":
        return "in_progress" if state == "open" else state
    if cancelled:
        return "cancelled"
    refused = sum(counts.failures.get(kind, 0) for kind in REFUSED)
    return "failed" if counts.done and refused == counts.done else "completed"


def exit_code_of(counts: Counts, *, fail_above: float, cancelled: bool = False) -> ExitCode:
    """How a finished job's command ends."""
    return ExitCode.FOUND if cancelled or counts.failed > fail_above * counts.done else ExitCode.OK
