"""What a refused write is called, what is to be done about it, and how much room a job needs."""

import errno
import os
import sqlite3
from pathlib import Path

import pytest

from common.settings import Settings
from common.wire import Result
from producer.disk import DiskError, journal_refused, write_refused, writing_to
from producer.disk_need import FIRST_LINE_BYTES, LEAST_BYTES, SERVER_LOG_BYTES, Left, needed_bytes, saying_how_much
from producer.job_directory import JobDirectory
from producer.job_spec import JobSpec
from producer.journal import Journal, RequestRow
from producer.selection import Selection
from tests.jobs import write_requests


@pytest.mark.parametrize(
    ("number", "why", "do", "is_full"),
    [
        (errno.ENOSPC, "the disk is full", "make room on the disk", True),
        (errno.EDQUOT, "Disk quota exceeded", "make room on the disk", True),
        (errno.EROFS, "Read-only file system", "mount the disk", False),
        (errno.EFBIG, "File too large", "ulimit -f", False),
        (errno.EIO, "Input/output error", "check the disk", False),
    ],
)
def test_each_refusal_names_its_remedy(tmp_path: Path, number: int, why: str, do: str, is_full: bool) -> None:
    refused = write_refused(OSError(number, os.strerror(number)), what="the ordered file", path=tmp_path)
    assert str(refused).startswith(f"the ordered file cannot be written: {why} ({tmp_path}) - ")
    assert do in refused.do
    assert refused.is_full == is_full
    assert refused.exit_code == 3


def test_an_error_of_sqlite_on_a_disk_with_room_is_told_as_it_is(tmp_path: Path) -> None:
    refused = journal_refused(sqlite3.OperationalError("disk I/O error"), path=tmp_path / "journal.sqlite")
    assert "the journal cannot be written: disk I/O error" in str(refused)
    assert not refused.is_full


def test_only_errors_of_the_system_are_renamed(tmp_path: Path) -> None:
    with pytest.raises(KeyError), writing_to(tmp_path, what="it"):
        raise KeyError
    with pytest.raises(DiskError, match="it cannot be written"), writing_to(tmp_path, what="it"):
        (tmp_path / "none" / "file").touch()


def make_job(folder: Path, *, rows: int, **more: object) -> JobDirectory:
    """A new job of `rows` requests, everything in `folder`."""
    source = write_requests(folder / "in.jsonl", rows)
    given: dict[str, object] = {"input": str(source), "output": None, "model": None, "redis": "given", **more}
    spec = JobSpec.from_settings(Settings(), **given)  # type: ignore[arg-type]
    return JobDirectory.create(folder / "jobs", spec, settings=Settings())


def test_a_job_needs_room_for_all_that_it_has_on_that_disk(tmp_path: Path) -> None:
    directory = make_job(tmp_path, rows=1000, redis="embedded")
    mean = directory.input_path.stat().st_size / 1000
    left = Left(1000, mean, mean + FIRST_LINE_BYTES)
    whole = left.results_bytes + left.journal_bytes + left.server_bytes
    assert abs(needed_bytes(directory, on=directory.journal_path) - whole) < 0.02 * whole
    assert needed_bytes(directory, on=Path("/proc")) == 0
    assert abs(needed_bytes(directory, on=None) - left.server_bytes) < 0.02 * whole


def test_a_rerun_needs_room_for_a_whole_ordered_file_and_its_new_lines(tmp_path: Path) -> None:
    directory = make_job(tmp_path, rows=10)
    with Journal.open(directory.journal_path) as journal:
        with journal.writing():
            journal.add_requests([RequestRow(seq, seq + 1, 9 * seq, 9, None) for seq in range(10)])
            journal.counts.total = 10
            journal.add_results([Result(seq, 0, 503, "overloaded", 1, 0, 0, b"x" * 99) for seq in range(10)])
            journal.settle([])
            journal.finish(exit_code=1)
        assert needed_bytes(directory, on=directory.output_path) < 1000, "nothing is left of it"
        with journal.writing():
            journal.begin_round(Selection())
    assert 1000 + 10 * 100 < needed_bytes(directory, on=directory.output_path) < 20_000


def test_no_job_needs_more_for_its_server_than_a_rewritten_log() -> None:
    assert Left(100_000_000, 1000.0, 1000.0).server_bytes == SERVER_LOG_BYTES


def test_what_stops_a_job_says_how_much_it_needs(tmp_path: Path) -> None:
    directory = make_job(tmp_path, rows=10)
    said = rf"a file of the job .* about {LEAST_BYTES >> 20} MiB more there"
    with pytest.raises(DiskError, match=said), saying_how_much(directory):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(directory.path))
