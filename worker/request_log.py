"""A log line for each request that ended, written many at a time: one by one they would cost more than the request.

Ids and outcome only, never a text. On by level info; lines wait at most a second, or until their micro-batch ends.
"""

import logging
import time
from datetime import UTC, datetime

import orjson

from common.errors import ErrorKind
from common.log import Event, log_lines
from common.result_line import Meta
from common.wire import Request

MOST_WAIT_S = 1.0
_UTC_Z = orjson.OPT_UTC_Z


class RequestLog:
    """The lines of one micro-batch's requests."""

    def __init__(self, job: str) -> None:
        self._job = job
        self._lines: list[bytes] = []
        self._flushed_s = time.monotonic()
        self._wanted = logging.getLogger(__name__).isEnabledFor(logging.INFO)

    def note(self, request: Request, meta: Meta, *, status: int, kind: ErrorKind | None) -> None:
        """`request` ended so."""
        if not self._wanted:
            return
        fields = {
            "event": Event.REQUEST_FINISHED,
            "level": "info",
            "logger": __name__,
            "timestamp": datetime.now(UTC),
            "job": self._job,
            "seq": request.seq,
            "line": request.line,
            "start": meta.started_at,
            "end": meta.finished_at,
            "status": status,
            "error": kind,
            "attempts": meta.attempts,
        }
        self._lines.append(orjson.dumps(fields, option=_UTC_Z))
        if time.monotonic() - self._flushed_s >= MOST_WAIT_S:
            self.flush()

    def flush(self) -> None:
        """Write what waits."""
        self._flushed_s = time.monotonic()
        if self._lines:
            log_lines(__name__, self._lines)
            self._lines = []
