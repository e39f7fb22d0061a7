"""What can go wrong, in two trees: `ErrorKind` for a request's result, `BakehouseError` for a command's end.

`ErrorKind` alone decides whether a request is tried again, and its value is the metric label and the `error.code` of
the result line (docs/wire.md). A `BakehouseError` carries facts as attributes and the exit code its command ends with.
"""

from enum import IntEnum, StrEnum


class ExitCode(IntEnum):
    """How every verb ends (README, exit codes)."""

    OK = 0
    FOUND = 1
    REFUSED = 2
    NOT_FINISHED = 3
    INTERRUPTED = 130


class ErrorKind(StrEnum):
    """Why a result is not a good one; the value is `error.code` and the metric label."""

    INVALID_JSON = "invalid_json"
    INVALID_REQUEST = "invalid_request"
    LINE_TOO_LONG = "line_too_long"
    DUPLICATE_CUSTOM_ID = "duplicate_custom_id"
    MODEL_NOT_FOUND = "model_not_found"
    REJECTED = "rejected"
    TIMEOUT = "timeout"
    OVERLOADED = "overloaded"
    ENGINE_ERROR = "engine_error"
    RESPONSE_TOO_LARGE = "response_too_large"
    WORKER_LOST = "worker_lost"
    INTERNAL_ERROR = "internal_error"
    CANCELLED = "cancelled"

    @property
    def retryable(self) -> bool:
        """Whether another attempt can change the outcome."""
        return self in _RETRYABLE

    @property
    def status(self) -> int:
        """The HTTP status of a result of this kind, where the engine gave none."""
        return _STATUS[self]


_RETRYABLE = frozenset({ErrorKind.TIMEOUT, ErrorKind.OVERLOADED, ErrorKind.ENGINE_ERROR})
_STATUS = {
    ErrorKind.INVALID_JSON: 400,
    ErrorKind.INVALID_REQUEST: 400,
    ErrorKind.LINE_TOO_LONG: 400,
    ErrorKind.DUPLICATE_CUSTOM_ID: 400,
    ErrorKind.MODEL_NOT_FOUND: 404,
    ErrorKind.REJECTED: 400,
    ErrorKind.TIMEOUT: 504,
    ErrorKind.OVERLOADED: 503,
    ErrorKind.ENGINE_ERROR: 500,
    ErrorKind.RESPONSE_TOO_LARGE: 500,
    ErrorKind.WORKER_LOST: 500,
    ErrorKind.INTERNAL_ERROR: 500,
    ErrorKind.CANCELLED: 499,
}


class BakehouseError(Exception):
    """The root. `what` happened, `where`, and what to `do` about it; `exit_code` ends the command."""

    exit_code = ExitCode.NOT_FINISHED

    def __init__(self, what: str, *, where: str = "", do: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.do = do

    def __str__(self) -> str:
        parts = [self.what]
        if self.where:
            parts.append(f"({self.where})")
        if self.do:
            parts.append(f"- {self.do}")
        return " ".join(parts)


class RefusedError(BakehouseError):
    """Refused before any work was done: bad arguments, bad input, a state that must not be touched."""

    exit_code = ExitCode.REFUSED


class StoppedError(BakehouseError):
    """Not finished, and resumable: no worker, Redis gone, a newer collector, a full disk."""


class InterruptedJobError(BakehouseError):
    """Stopped by the user; resumable."""

    exit_code = ExitCode.INTERRUPTED


class EngineDeadError(BakehouseError):
    """The engine behind this worker is gone or hung; nothing in flight may be recorded as failed."""


class EngineMemoryError(EngineDeadError):
    """The engine is gone, for want of memory: with fewer requests at once the next one may live."""


class EngineStartError(BakehouseError):
    """The engine could not start. `permanent`: starting again can never succeed."""

    def __init__(self, what: str, *, where: str = "", do: str = "", permanent: bool = True) -> None:
        super().__init__(what, where=where, do=do)
        self.permanent = permanent


class WireError(BakehouseError):
    """Bytes from Redis that cannot be read: malformed, too large, or of another wire version."""
