"""How a run of a collector ended, and what a finished job's command says of it."""

from dataclasses import dataclass
from typing import Literal

from common.errors import ErrorKind, ExitCode
from producer.counts import Counts
from producer.steering import JobState

Status = Literal["in_progress", "completed", "failed"]
_REFUSED = (
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
    """`done`, or `open`: what the window has room for was fed."""
    waiting_reason: str | None
    """What an unfinished job waits for, as far as this run saw."""

    @property
    def status(self) -> Status:
        """The state in OpenAI's words."""
        return status_of(self.state, self.counts)


def status_of(state: JobState, counts: Counts) -> Status:
    """A job's state in OpenAI's words; failed: not one line could become a request."""
    if state == "open":
        return "in_progress"
    refused = sum(counts.failures.get(kind, 0) for kind in _REFUSED)
    return "failed" if counts.done and refused == counts.done else "completed"


def exit_code_of(counts: Counts, *, fail_above: float) -> ExitCode:
    """How a finished job's command ends."""
    return ExitCode.FOUND if counts.failed > fail_above * counts.done else ExitCode.OK
