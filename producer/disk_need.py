"""How much a job will still write to a disk that is full: what to tell somebody who has to make room.

An estimate from the lines so far and from the input's length, read from the job directory once a write has failed.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from common.errors import BakehouseError
from producer.disk import MAKE_ROOM, DiskError, journal_refused, write_refused
from producer.job_directory import JobDirectory
from producer.journal_reader import read_checkpoint
from producer.journal_schema import LOG_BYTES

JOURNAL_ROW_BYTES = 220
"""What a finished request leaves in the journal (100,000 of them were 15 to 22 MB)."""
FIRST_LINE_BYTES = 1536
"""A result's line beside the request's own, until the first ones have been written."""
SERVER_LOG_BYTES = 128 * 1024 * 1024
"""An append-only file is written anew from 64 MiB on, when it has doubled: more than this it hardly takes."""
LEAST_BYTES = 1024 * 1024
_SAMPLE_BYTES = 64 * 1024


class Left(NamedTuple):
    """What a job still has to do, as far as its directory tells."""

    rows: int
    """Requests without a place in the ordered file, or in a rerun those without their new result."""
    request_bytes: float
    """Mean length of an input line."""
    line_bytes: float
    """Mean length of a line of the ordered file."""
    anew_bytes: int = 0
    """Length of an ordered file that a rerun will write anew."""

    @property
    def results_bytes(self) -> int:
        """The rest of the ordered file, or all of the new one."""
        return self.anew_bytes or int(self.rows * self.line_bytes)

    @property
    def journal_bytes(self) -> int:
        """Growth of the journal, its write-ahead log included."""
        lines_bytes = int(self.rows * self.line_bytes)
        rows_bytes = self.rows * JOURNAL_ROW_BYTES + (lines_bytes if self.anew_bytes else 0)  # there until its end
        return rows_bytes + min(LOG_BYTES, rows_bytes + 2 * lines_bytes)

    @property
    def server_bytes(self) -> int:
        """Growth of a server's append-only file: requests go in, results go in."""
        return min(SERVER_LOG_BYTES, int(self.rows * (self.request_bytes + self.line_bytes)))


@contextmanager
def saying_how_much(directory: JobDirectory) -> Iterator[None]:
    """Whatever disk stops the block: the error says how much the job will still write there.

    An error of the system or of SQLite on its way through becomes a `DiskError`: a disk that fails may do so anywhere.
    """
    try:
        try:
            yield
        except sqlite3.Error as error:
            raise journal_refused(error, path=directory.journal_path) from error
        except OSError as error:
            path = Path(os.fsdecode(error.filename)) if error.filename else directory.path
            raise write_refused(error, what="a file of the job", path=path) from error
    except DiskError as error:
        if error.is_full and error.do == MAKE_ROOM:
            needed = max(LEAST_BYTES, needed_bytes(directory, on=error.path))
            error.do = f"make room: the job will write about {-(-needed // 2**20):,} MiB more there"
        raise


def needed_bytes(directory: JobDirectory, *, on: Path | None) -> int:
    """Bytes still to be written to the disk that holds `on`; None: to the disk of a given server."""
    left = left_of(directory)
    if on is None:
        return left.server_bytes
    parts = [(directory.output_path, left.results_bytes), (directory.journal_path, left.journal_bytes)]
    if directory.spec.redis == "embedded":
        parts.append((directory.server_path, left.server_bytes))
    device = _device(on)
    return sum(size for path, size in parts if _device(path) == device)


def left_of(directory: JobDirectory) -> Left:
    """What is left of the job in `directory`; all of it where the journal cannot be asked."""
    size, sample = 0, b""
    with suppress(OSError), directory.open_input() as source:
        size, sample = os.fstat(source.fileno()).st_size, source.read(_SAMPLE_BYTES)
    request_bytes = len(sample) / max(1, sample.count(b"\n"))
    total, line_bytes = round(size / max(1.0, request_bytes)), request_bytes + FIRST_LINE_BYTES
    checkpoint = None
    with suppress(BakehouseError):
        checkpoint = read_checkpoint(directory.journal_path)
    if checkpoint is None:
        return Left(total, request_bytes, line_bytes)
    total, frontier = checkpoint.counts.total or total, checkpoint.frontier
    line_bytes = checkpoint.out_bytes / frontier if frontier else line_bytes
    if checkpoint.shown < checkpoint.round:
        return Left(checkpoint.counts.left, request_bytes, line_bytes, anew_bytes=checkpoint.out_bytes)
    return Left(max(0, total - frontier), request_bytes, line_bytes)


def _device(path: Path) -> int | None:
    """The number of the file system that holds `path`, or would."""
    for place in (path, *path.parents):
        with suppress(OSError):
            return place.stat().st_dev
    return None
