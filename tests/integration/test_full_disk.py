"""Journal and ordered file on a full disk: what was durable stays as it was, and nothing is torn or counted twice."""

from pathlib import Path

import pytest

from common.errors import StoppedError
from common.wire import Result
from producer.disk import DiskError
from producer.journal import Journal, RequestRow
from producer.output import Output
from tests.faults.small_disk import SmallDisk

STEP = 500
LINE = '{{"seq":{},"text":"' + "x" * 1000 + '"}}'


def settle(journal: Journal, *, first: int) -> None:
    """Take in `STEP` results of 1 KB in one transaction."""
    seqs = range(first, first + STEP)
    with journal.writing():
        journal.add_requests([RequestRow(seq, seq + 1, 10 * seq, 10, None) for seq in seqs])
        journal.add_results([Result(seq, 0, 200, "", 1, 0, 0, LINE.format(seq).encode()) for seq in seqs])


def settle_until_refused(journal: Journal) -> int:
    """Take in results until the disk is full; returns how many transactions there were before, the first included."""
    for steps in range(1, 20):
        try:
            settle(journal, first=steps * STEP)
        except DiskError as error:
            if "the journal cannot be written: the disk is full" in str(error) and error.is_full:
                return steps
            raise
    raise AssertionError("the disk is not full")


def test_a_journal_is_closed_by_a_write_that_failed(disk: SmallDisk) -> None:
    """Its counts in memory are ahead of the file then: the next commit would make them last."""
    path = disk.path / "journal.sqlite"
    journal = Journal.open(path)
    settle(journal, first=0)
    disk.fill()
    steps = settle_until_refused(journal)
    disk.make_room()
    with pytest.raises(StoppedError, match="no more after a write that failed"), journal.writing():
        journal.forget_pending(below=0)
    journal.close()
    journal = Journal.open(path)
    assert journal.counts.done == journal.counts.fed == steps * STEP == journal.next_seq()
    settle(journal, first=steps * STEP)
    journal.close()


def test_the_ordered_file_ends_at_a_line_end(disk: SmallDisk, tmp_path: Path) -> None:
    journal = Journal.open(tmp_path / "journal.sqlite")
    path, errors = disk.path / "out.jsonl", tmp_path / "errors.jsonl"
    output = Output(path, errors).open(journal)
    for first in (0, STEP):
        settle(journal, first=first)
    disk.fill(leave_bytes=STEP * 1200)
    with journal.writing():
        stretch = journal.settle([])[1]
    assert stretch is not None
    with pytest.raises(DiskError, match="the ordered file cannot be written: the disk is full"):
        output.write(stretch)
    output.close()
    written = path.read_bytes()
    assert written.endswith(b"\n")
    assert STEP < written.count(b"\n") < 2 * STEP
    disk.make_room()
    output = Output(path, errors).open(journal)
    assert output.synced_frontier == 2 * STEP
    assert path.read_bytes().split(b"\n")[:-1] == [LINE.format(seq).encode() for seq in range(2 * STEP)]
    output.close()
    journal.close()
