"""A log line for each request that ended, written many at a time: one by one they would cost more than the request.

Ids and outcome only, never a text. On by level info; lines wait at most a second, or until their micro-batch ends.
"""

import logging
import time

import orjson

from common.errors import ErrorKind
from common.log import Event, log_lines
from common.result_line import to_json
from common.wire import Request

MOST_WAIT_S = 1.0
_EVENT, _LOGGER = Event.REQUEST_FINISHED.value.encode(), __name__.encode()
_LINE = (
    b'{"event":"%b","level":"info","logger":"%b","timestamp":%b,"job":%b,"seq":%d,"line":%d,"start":%b,"end":%b,'
    b'"status":%d,"error":%b,"attempts":%d}'
)


class RequestLog:
    """The lines of one micro-batch's requests."""

    def __init__(self, job: str, *, started_at: bytes) -> None:
        """`started_at` as JSON."""
        self._job = to_json(job)
        self._started_at = started_at
        self._lines: list[bytes] = []
        self._flushed_s = time.monotonic()
        self._wanted = logging.getLogger(__name__).isEnabledFor(logging.INFO)

    def note(self, request: Request, *, status: int, kind: ErrorKind | None, attempts: int, finished_at: bytes) -> None:
        """`request` ended so; `finished_at` as JSON."""
        if not self._wanted:
            return
        line = _LINE % (
            _EVENT,
            _LOGGER,
            finished_at,
            self._job,
            request.seq,
            request.line,
            self._started_at,
            finished_at,
            status,
            b"null" if kind is None else orjson.dumps(kind.value),
            attempts,
        )
        self._lines.append(line)
        if time.monotonic() - self._flushed_s >= MOST_WAIT_S:
            self.flush()

    def flush(self) -> None:
        """Write what waits."""
        self._flushed_s = time.monotonic()
        if self._lines:
            log_lines(__name__, self._lines)
            self._lines = []
