"""What refuses a write: a full disk, a failing one, one that is read-only. It ends a command, and the job can go on.

A write that failed is never passed over: whatever was not written is written again by the next start.
"""

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from common.errors import StoppedError

MAKE_ROOM = "make room on the disk"
_FULL = (errno.ENOSPC, errno.EDQUOT)
_REMEDIES = {
    **dict.fromkeys(_FULL, MAKE_ROOM),
    errno.EROFS: "mount the disk so that it can be written",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f)",
}
_LAST_PAGE_BYTES = 4096
"""SQLite writes whole pages: with less than one left its disk is full, whatever the error was called."""


class DiskError(StoppedError):
    """Something could not be written. `is_full`: for want of room alone."""

    def __init__(self, what: str, *, why: str, path: Path | None, where: str = "", is_full: bool, do: str) -> None:
        """`path`: the file or folder; None for a server's disk, which `where` names."""
        super().__init__(f"{what} cannot be written: {why}", where=where or str(path), do=do)
        self.path = path
        self.is_full = is_full


def write_refused(error: OSError, *, what: str, path: Path) -> DiskError:
    """`error` of a write to `path`, which is `what`."""
    is_full = error.errno in _FULL
    why = "the disk is full" if error.errno == errno.ENOSPC else error.strerror or str(error)
    do = _REMEDIES.get(error.errno or 0, "check the disk")
    return DiskError(what, why=why, path=path, is_full=is_full, do=do)


def journal_refused(error: sqlite3.Error, *, path: Path) -> DiskError:
    """`error` of SQLite over the journal at `path`."""
    is_full = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL or is_disk_full(path.parent)
    if is_full or is_read_only(path.parent):
        known = OSError(errno.ENOSPC if is_full else errno.EROFS, os.strerror(errno.EROFS))
        return write_refused(known, what="the journal", path=path)
    do = "check the disk, and the limit on the size of files (ulimit -f)"
    return DiskError("the journal", why=str(error), path=path, is_full=False, do=do)


def is_disk_full(folder: Path) -> bool:
    """Whether the disk that holds `folder` has no room, as far as can be seen."""
    try:
        facts = os.statvfs(folder)
    except OSError:
        return False
    return facts.f_bavail * facts.f_frsize < _LAST_PAGE_BYTES


def is_read_only(folder: Path) -> bool:
    """Whether the file system that holds `folder` is mounted so."""
    try:
        return bool(os.statvfs(folder).f_flag & os.ST_RDONLY)
    except OSError:
        return False


@contextmanager
def writing_to(path: Path, *, what: str) -> Iterator[None]:
    """Raises `DiskError` where the block raises `OSError`; `path` is what it writes to, named to the user as `what`."""
    try:
        yield
    except OSError as error:
        raise write_refused(error, what=what, path=path) from error
