"""The journal on a real file: transactions, epochs, look-ups, and another process reading along."""

import sqlite3
from pathlib import Path

import pytest

from common.errors import RefusedError, StoppedError
from common.wire import Result
from producer.journal import Journal, RequestRow
from producer.journal_reader import JournalReader, MicroBatchRow, Place
from producer.journal_results import STRETCH_ROWS
from producer.reader import hash_id


def result(seq: int, *, status: int = 200, text: str = "x") -> Result:
    code = "" if status == 200 else "timeout"
    return Result(seq, 0, status, code, 1, 3, 2, f'{{"seq":{seq},"x":"{text}"}}'.encode())


def request(seq: int) -> RequestRow:
    return RequestRow(seq, seq + 1, 100 * seq, 100, hash_id(f"r{seq}"))


def micro_batch(mb: int, *seqs: int) -> MicroBatchRow:
    return MicroBatchRow(mb, 0, "m", "normal", seqs, b"digest", 1000, 12.5, 0, 0)


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    """A journal with six requests in two micro-batches."""
    journal = Journal.open(tmp_path / "journal.sqlite")
    with journal.writing():
        journal.add_requests([request(seq) for seq in range(6)])
        journal.add_micro_batches([micro_batch(1, 0, 1, 2), micro_batch(2, 3, 4, 5)])
        journal.set_position((600, 7, 6))
    return journal


def again(journal: Journal) -> Journal:
    """The same journal opened anew."""
    path = journal._path
    journal.close()
    return Journal.open(path)


def test_what_is_committed_is_there_again(journal: Journal) -> None:
    with journal.writing():
        assert journal.add_results([result(1), result(4, status=504)]) == [result(1), result(4, status=504)]
        journal.add_loss(2, [3, 5], token="t", armed=False, cause="self")
        journal.add_repair(1)
        journal.pin({"m": "d"})
    journal = again(journal)
    checkpoint = journal.checkpoint()
    assert (checkpoint.input_offset, checkpoint.input_line, checkpoint.input_seq) == (600, 7, 6)
    assert (checkpoint.mb_high, checkpoint.digests, checkpoint.state) == (2, {"m": "d"}, "open")
    assert (checkpoint.counts.fed, checkpoint.counts.done, checkpoint.counts.redelivered) == (6, 2, 1)
    opened = {row.mb: (row, got) for row, got in journal.open_micro_batches()}
    assert {mb: got for mb, (_, got) in opened.items()} == {1: 0b010, 2: 0b010}
    assert opened[2][0] == micro_batch(2, 3, 4, 5)._replace(deliveries=1)
    assert opened[1][0].repairs == 1
    assert journal.places([5, 0]) == [Place(5, 6, 500, 100), Place(0, 1, 0, 100)]
    assert journal.next_seq() == 6


def test_a_failed_transaction_leaves_nothing(journal: Journal) -> None:
    def fail() -> None:
        with journal.writing():
            journal.add_results([result(0)])
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    with pytest.raises(StoppedError, match="after a write that failed"):
        fail()
    journal = again(journal)
    assert journal.counts.done == 0
    assert [got for _, got in journal.open_micro_batches()] == [0, 0]


def test_the_first_result_of_a_seq_wins(journal: Journal) -> None:
    with journal.writing():
        assert journal.add_results([result(0, text="a"), result(0, text="b")]) == [result(0, text="a")]
    with journal.writing():
        assert journal.add_results([result(0, status=504, text="c"), result(1)]) == [result(1)]
    assert (journal.counts.done, journal.counts.duplicates, journal.counts.failed) == (2, 2, 0)
    assert journal.result_line(0, output=Path("none")) == result(0, text="a").line


def test_a_closed_micro_batch_stays_known(journal: Journal) -> None:
    with journal.writing():
        journal.add_results([result(seq) for seq in (0, 1, 2)])
        journal.close_micro_batches([1])
    assert [row.mb for row, _ in journal.open_micro_batches()] == [2]
    row = journal.micro_batch(1)
    assert row is not None
    assert (row.seqs, journal.finished(row)) == ((0, 1, 2), 0b111)
    assert journal.micro_batch(3) is None


def test_an_older_collector_cannot_write(journal: Journal) -> None:
    newer = Journal.open(journal._path)
    newer.prepare()
    newer.take()
    with pytest.raises(StoppedError, match="newer collector"), journal.writing():
        journal.add_results([result(0)])
    assert newer.checkpoint().counts.done == 0
    with newer.writing():
        newer.add_results([result(0)])
    assert newer.checkpoint().epoch == 1


def test_an_epoch_asked_for_and_not_taken_is_asked_for_again_by_the_same_owner(journal: Journal) -> None:
    journal.prepare()
    asked = journal.owner, journal.owner_epoch
    journal = again(journal)
    journal.prepare()
    assert (journal.owner, journal.owner_epoch) == asked
    journal.take()
    journal.prepare()
    assert journal.owner_epoch == asked[1] + 1
    assert journal.owner != asked[0]


def test_an_id_is_found_in_the_journal_then_in_the_file(journal: Journal, tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    with journal.writing():
        journal.add_results([result(0), result(2)])
        stretch = journal.settle([])[1]
    assert stretch is not None
    assert [journal.find(name) for name in ("r0", "r5", "r99")] == [0, 5, None]
    assert journal.result_line(0, output=output) == result(0).line
    output.write_bytes(stretch.data)
    with journal.writing():
        journal.forget_pending(below=stretch.frontier)
    with JournalReader.open(journal._path) as reader:
        assert reader.result_line(0, output=output) == result(0).line
        assert reader.result_line(2, output=output) == result(2).line
        assert reader.result_line(1, output=output) is None
        with pytest.raises(sqlite3.OperationalError):
            reader._connection.execute("DELETE FROM result")


def test_the_frontier_passes_in_slices(tmp_path: Path) -> None:
    """A long stretch behind one slow request is written piece by piece, never all at once."""
    journal = Journal.open(tmp_path / "journal.sqlite")
    total = 2 * STRETCH_ROWS + 10
    with journal.writing():
        journal.add_requests([request(seq) for seq in range(total)])
        journal.add_results([result(seq) for seq in range(1, total)])
        assert journal.settle([])[1] is None
    assert not journal.can_pass()
    with journal.writing():
        journal.add_results([result(0)])
    lengths, offset = [], 0
    while journal.can_pass():
        with journal.writing():
            stretch = journal.settle([])[1]
        assert stretch is not None
        assert stretch.offset == offset
        offset += len(stretch.data)
        lengths.append(stretch.data.count(b"\n"))
    assert lengths == [STRETCH_ROWS, STRETCH_ROWS, 10]
    assert [stretch.data.count(b"\n") for stretch in journal.unsynced()] == lengths


def test_a_missing_journal_and_another_version_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="no journal"):
        JournalReader.open(tmp_path / "journal.sqlite")
    journal = Journal.open(tmp_path / "journal.sqlite")
    journal._connection.execute("PRAGMA user_version = 99")
    journal.close()
    for opening in (Journal.open, JournalReader.open):
        with pytest.raises(RefusedError, match="version 99"):
            opening(tmp_path / "journal.sqlite")


def test_files_are_private(journal: Journal) -> None:
    assert journal._path.stat().st_mode & 0o777 == 0o600


def test_lines_get_the_same_places_whenever_they_come(journal: Journal) -> None:
    """Some came before, some twice, the next one last of all: each is noted once, at the end of the one before it."""
    data = b""
    for seqs, new in [([1, 4, 5], [1, 4, 5]), ([2, 2, 4], [2]), ([0, 0, 1], [0]), ([3], [3])]:
        with journal.writing():
            fresh, stretch = journal.settle([result(seq, text="y" * seq) for seq in seqs])
        assert [each.seq for each in fresh] == new
        data += stretch.data if stretch is not None else b""
    lines = [result(seq, text="y" * seq).line for seq in range(6)]
    assert data == b"\n".join(lines) + b"\n"
    places = journal._connection.execute("SELECT seq, out_offset, out_length FROM result ORDER BY seq").fetchall()
    assert [data[offset : offset + length] for _, offset, length in places] == [line + b"\n" for line in lines]
    assert journal.counts.duplicates == 4
