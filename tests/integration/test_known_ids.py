"""Which custom_ids a job has had: known from its journal after a restart, and nobody innocent called a duplicate."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from producer.journal import Journal, RequestRow
from producer.known_ids import RECALL_ROWS, KnownIds
from producer.reader import hash_id

ROWS = RECALL_ROWS + 10


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    """A journal with more requests than are recalled at a time; every third one has no id."""
    with Journal.open(tmp_path / "journal.sqlite") as journal:
        rows = [
            RequestRow(seq, seq + 1, 100 * seq, 100, hash_id(f"r{seq}") if seq % 3 else None) for seq in range(ROWS)
        ]
        with journal.writing():
            journal.add_requests(rows)
        yield journal


def test_ids_are_recalled_step_by_step(journal: Journal) -> None:
    ids = KnownIds(journal)
    assert ids.before == ids.missing == ROWS
    assert [ids.recall(), ids.missing, ids.recall(), ids.missing, ids.recall()] == [RECALL_ROWS, 10, 10, 0, 0]
    assert ids.take(hash_id("r0"), ROWS)
    assert not ids.take(hash_id("r1"), ROWS + 1)
    assert not ids.take(hash_id(f"r{ROWS - 1}"), ROWS + 1)


def test_nothing_is_taken_before_all_are_recalled(journal: Journal) -> None:
    ids = KnownIds(journal)
    assert not ids.take(hash_id(f"r{ROWS - 1}"), ROWS)
    assert not ids.missing


def test_a_new_id_is_known_before_and_after_it_is_journaled(journal: Journal) -> None:
    ids, new = KnownIds(journal), hash_id("new")
    assert ids.take(new, ROWS)
    assert not ids.take(new, ROWS + 1)
    with journal.writing():
        journal.add_requests([RequestRow(ROWS, ROWS + 1, 100 * ROWS, 100, new)])
    ids.journaled([new, None])
    assert not ids._new
    assert not ids.take(new, ROWS + 1)


def test_hashes_that_look_alike_are_not_the_same(journal: Journal) -> None:
    ids, old = KnownIds(journal), hash_id("r1")
    alike = old[:6] + bytes(10)
    assert ids.take(alike, ROWS)
    assert set(ids._ids.find(old)) == {1, ROWS}
    assert not ids.take(old, ROWS + 1)
    assert not ids.take(alike, ROWS + 1)
