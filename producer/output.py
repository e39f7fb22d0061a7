"""The ordered file and errors.jsonl: the end of a line's way. Written at journaled offsets, never appended.

Which bytes stand where is decided in the journal and committed there before the first one is written here. So a thawed
older collector writes equal bytes at equal places, and what a crash kept from the file is written again at the next
start. A crash while writing leaves a torn tail beyond what the journal knows as synced; `open` mends it.
"""

import errno
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Self

from common.errors import RefusedError
from producer.disk import write_refused, writing_to
from producer.input_file import sync_folder
from producer.journal import Journal
from producer.journal_reader import Checkpoint
from producer.journal_results import Stretch
from producer.rewriting import Rewriting

_RESULTS = "the ordered file"
_ERRORS = "errors.jsonl"
_NO_PLACE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ELOOP)
"""Somebody must give another place; with any other error the same one may be good later."""

_HEAD_BYTES = 256


class Output:
    """Both files of one job, open for its collector's life."""

    def __init__(self, results: Path, errors: Path) -> None:
        self._results_path = results
        self._errors_path = errors
        self._rewriting = Rewriting(results, errors)
        self._results = -1
        self._errors = -1
        self._errors_written = True
        self.synced_frontier = 0
        """Every seq below it is in the ordered file, on disk."""

    def check(self, journal: Journal) -> None:
        """Raises `RefusedError` when the ordered file is gone or shorter than what was synced (somebody cut it, and its
        lines are in no other place), is not empty before the first line, or knows more than `journal`. Changes nothing.
        """
        if self._rewriting.is_outstanding(journal):
            return  # the file that is there is the old one
        needed, _ = journal.synced_lengths()
        _check_length(self._results_path, needed, untouched=journal.frontier == 0)
        _check_no_newer(self._results_path, journal.checkpoint())

    def open(self, journal: Journal) -> Self:
        """Open both files and bring them to what `journal` says. Raises `RefusedError` as `check` does.

        A longer ordered file loses its tail. errors.jsonl is copied out of the ordered file where it is short.
        """
        self.check(journal)
        if self._rewriting.is_outstanding(journal):
            self._rewriting.put_in_place(journal)
        with journal.writing():  # who stood still since then must not cut the file of the one who replaced it
            self._mend(journal)
        return self

    def renew(self, journal: Journal) -> None:
        """Let both files show the newest round, as the end of a rerun; the ordered file that was there is kept.

        Raises `DiskError`, `RefusedError`, `StoppedError`: the next start goes on with it.
        """
        if journal.shown < journal.round:
            self._rewriting.write(journal)
        if self._rewriting.is_outstanding(journal):
            self._rewriting.put_in_place(journal)

    def write(self, stretch: Stretch) -> None:
        """Put `stretch` in its place; it is safe on disk only after `sync`. Raises `DiskError`."""
        _write_at(self._results, stretch.data, stretch.offset, self._results_path, what=_RESULTS)
        if stretch.error_data:
            self._errors_written = True
            _write_at(self._errors, stretch.error_data, stretch.error_offset, self._errors_path, what=_ERRORS)

    def sync(self, *, frontier: int) -> None:
        """Block until all that was written is on disk: every seq below `frontier`. Raises `DiskError`."""
        with writing_to(self._results_path, what=_RESULTS):
            os.fdatasync(self._results)
        if self._errors_written:
            with writing_to(self._errors_path, what=_ERRORS):
                os.fdatasync(self._errors)
            self._errors_written = False
        self.synced_frontier = frontier

    def close(self) -> None:
        """Close both files."""
        for descriptor in (self._results, self._errors):
            if descriptor >= 0:
                os.close(descriptor)
        self._results = self._errors = -1

    def _mend(self, journal: Journal) -> None:
        needed, errors_needed = journal.synced_lengths()
        self._results = _open(self._results_path, what=_RESULTS)
        self._errors = _open(self._errors_path, what=_ERRORS)
        with writing_to(self._errors_path, what=_ERRORS):
            if os.fstat(self._errors).st_size < errors_needed:
                self._copy_errors(journal)
            os.ftruncate(self._errors, errors_needed)
        with writing_to(self._results_path, what=_RESULTS):
            os.ftruncate(self._results, needed)
        for stretch in journal.unsynced():
            self.write(stretch)
        self.sync(frontier=journal.frontier)
        with writing_to(self._results_path, what=_RESULTS):
            sync_folder(self._results_path.parent)
        with writing_to(self._errors_path, what=_ERRORS):
            sync_folder(self._errors_path.parent)

    def _copy_errors(self, journal: Journal) -> None:
        """Write errors.jsonl anew from the ordered file, up to what is synced there."""
        os.ftruncate(self._errors, 0)
        at = 0
        size = os.fstat(self._results).st_size
        for offset, length in journal.failed_places():
            if offset + length > size:
                return
            _write_at(self._errors, os.pread(self._results, length, offset), at, self._errors_path, what=_ERRORS)
            at += length


def _check_length(path: Path, needed: int, *, untouched: bool) -> None:
    found = path.stat().st_size if path.exists() else None
    if untouched and found:
        raise RefusedError(
            f"the output holds {found} bytes that this job did not write",
            where=str(path),
            do="choose another -o, or move it away",
        )
    if needed and (found is None or found < needed):
        raise RefusedError(
            f"the ordered file {'is gone' if found is None else f'has {found} bytes'}; {needed} were written to it",
            where=str(path),
            do="put it back, or start again with --fresh",
        )


def check_finished(path: Path, checkpoint: Checkpoint) -> None:
    """Raises `RefusedError` when the ordered file of a finished job is gone or shorter than it was."""
    _check_length(path, checkpoint.out_bytes, untouched=False)


def _check_no_newer(path: Path, checkpoint: Checkpoint) -> None:
    """A line is written after the journal has given it its place: one without a place is of a newer journal."""
    if not path.exists() or path.stat().st_size <= checkpoint.out_bytes:
        return
    with path.open("rb") as file:
        file.seek(checkpoint.out_bytes)
        head = file.read(_HEAD_BYTES)
    if re.match(rb'\{"id":"[\w-]+-%d"' % checkpoint.frontier, head):
        raise RefusedError(
            f"this journal is an old copy: it knows {checkpoint.out_bytes} bytes of the ordered file, not all",
            where=str(path),
            do="put the newest job directory back, or start again with --fresh",
        )


def _open(path: Path, *, what: str) -> int:
    """Raises `RefusedError` for a place that was never good, `DiskError` for a disk that takes no file now."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno in _NO_PLACE:
            raise RefusedError(f"{what} cannot be opened: {error.strerror}", where=str(path)) from error
        raise write_refused(error, what=what, path=path) from error


def _write_at(descriptor: int, data: bytes, offset: int, path: Path, *, what: str) -> None:
    """Write all of `data`, whole lines; where that fails, the file ends at a line end again."""
    written = 0
    try:
        while written < len(data):
            written += os.pwrite(descriptor, memoryview(data)[written:], offset + written)
    except OSError as error:
        with suppress(OSError):  # the next start cuts it as well
            if os.fstat(descriptor).st_size <= offset + written:  # longer: somebody else's, after a thaw
                os.ftruncate(descriptor, offset + data.rfind(b"\n", 0, written) + 1)
        raise write_refused(error, what=what, path=path) from error
