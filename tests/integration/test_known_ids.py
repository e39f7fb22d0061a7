"""Which custom_ids a job has had: known from its journal after a restart, and nobody innocent called a duplicate."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from producer.journal import Journal, RequestRow
from producer.known_ids import RECALL_ROWS, KnownIds
from producer.reader import hash_id
from tests.collecting import Bench, FakeEngineWorker, quick_settings, write_input
from tests.servers import Server

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
    assert set(ids._ids.find_or_add(old, ROWS + 1)) == {1, ROWS}
    assert not ids.take(old, ROWS + 1)
    assert not ids.take(alike, ROWS + 1)


def test_a_continued_job_knows_the_ids_from_before(
    tmp_path: Path, valkey: redis.Redis, valkey_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are recalled in steps, which is said, before the next line is fed; the lines that repeat one are refused."""
    source = write_input(tmp_path / "in.jsonl", 40)
    source.write_text(source.read_text() + "".join(source.read_text().splitlines(keepends=True)[::4]))
    bench = Bench(tmp_path, valkey_server, source, settings=quick_settings(valkey_server, window_requests=40))
    assert bench.run(until="fed").counts.fed == 40
    monkeypatch.setattr("producer.known_ids.RECALL_ROWS", 7)
    with FakeEngineWorker(valkey_server):
        counts = bench.run().counts
    assert (counts.total, counts.succeeded, counts.failures) == (50, 40, {"duplicate_custom_id": 10})
    assert "the custom_ids of 40 lines read before are recalled: 0%" in bench.reasons
