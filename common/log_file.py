"""A log file that is rotated, and that never stops the work: what its disk does not take is dropped, and that is said.

A log is not the data. It is said on stderr once when the first entry is dropped, and once when entries are written
again, with their number. After a torn line the next entry begins a line of its own.
"""

import errno
import logging
import sys
from contextlib import suppress
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path

from common.errors import RefusedError

MAX_FILE_BYTES = 64 * 1024 * 1024
KEPT_FILES = 5
_PASSING = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EFBIG, errno.ESTALE)
"""The disk takes nothing now, and may later; with any other error the file can never be opened."""


class LogFile(RotatingFileHandler):
    """The file at `path`, mode 0600. Raises `RefusedError` where it can never be opened."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, maxBytes=MAX_FILE_BYTES, backupCount=KEPT_FILES, encoding="utf-8", delay=True)
        self._path = path
        self._dropped = 0
        try:
            self.stream = self._open()
        except OSError as error:
            if error.errno not in _PASSING:
                raise RefusedError(f"the log file cannot be opened: {error.strerror}", where=str(path)) from error
            self._drop(error)

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record, or drop it."""
        before = self._dropped
        super().emit(record)
        if before and self._dropped == before:
            self._dropped = 0
            _say(f"the log is written again; {before:,} entries were dropped ({self._path})")

    def handleError(self, record: logging.LogRecord) -> None:
        """Called where a record could not be written."""
        error = sys.exc_info()[1]
        if isinstance(error, OSError):
            self._drop(error)
        else:
            super().handleError(record)

    def _drop(self, error: OSError) -> None:
        """Count an entry, and let go of what is buffered of it: the next one opens the file anew."""
        stream, self.stream = self.stream, None
        with suppress(OSError):
            if stream is not None:
                stream.close()
        self._dropped += 1
        if self._dropped == 1:
            _say(f"the log cannot be written: {error.strerror} ({self._path}); entries are dropped, the work goes on")

    def _open(self) -> TextIOWrapper:
        stream = super()._open()
        self._path.chmod(0o600)
        with self._path.open("rb") as file:
            torn = file.seek(0, 2) and file.seek(-1, 2) and file.read(1) != b"\n"
        if torn:
            stream.write("\n")
        return stream


def _say(text: str) -> None:
    """To stderr, whose own disk may be full as well."""
    with suppress(OSError):
        print(text, file=sys.stderr, flush=True)
