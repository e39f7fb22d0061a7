"""What chaos would call wrong: a real job that is done, and then spoilt in each way that must be seen."""

import random
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from benchmarks.chaos.arena import JOB, Arena
from benchmarks.chaos.judge import Findings, judge
from benchmarks.chaos.lines import lasting
from benchmarks.chaos.shape import Shape
from common import keys
from tests.processes import read_results

ROWS = 24


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    """A job that nothing has disturbed, at its end."""
    shape = Shape(rows=ROWS, nodes=(1,), verbs=("run",), step_s=0.002)
    with Arena(tmp_path_factory.mktemp("arena"), shape, draw=random.Random(1)) as arena:
        assert arena.finish(timeout_s=60) == 0, arena.collector.last_words()
        arena.watcher.stop()
        yield arena


@pytest.fixture
def look(arena: Arena) -> Iterator[Callable[[], Findings]]:
    """Judge it again; afterwards all is as it was."""
    output = arena.output.read_bytes()
    expected = [lasting(result) for result in read_results(arena.output)]
    with closing(sqlite3.connect(":memory:")) as kept, closing(sqlite3.connect(arena.journal_path)) as journal:
        journal.backup(kept)
        yield lambda: judge(arena, undisturbed=expected, ends_workers=False, durable=[output[:100]])
        arena.output.write_bytes(output)
        kept.backup(journal)


def spoil(arena: Arena, change: Callable[[list[bytes]], list[bytes]]) -> None:
    """Write the ordered file anew from its changed lines."""
    arena.output.write_bytes(b"".join(change(arena.output.read_bytes().splitlines(keepends=True))))


def write(arena: Arena, statement: str) -> None:
    """Change the journal."""
    with closing(sqlite3.connect(arena.journal_path)) as journal, journal:
        journal.execute(statement)


def test_nothing_is_wrong(look: Callable[[], Findings]) -> None:
    found = look()
    assert (found.lost, found.doubled, found.innocents, found.broken) == (0, 0, 0, [])
    assert found.tokens_delivered > ROWS


def test_a_lost_line(arena: Arena, look: Callable[[], Findings]) -> None:
    spoil(arena, lambda lines: lines[:-1])
    assert (look().lost, look().doubled) == (1, 0)


def test_a_doubled_line(arena: Arena, look: Callable[[], Findings]) -> None:
    spoil(arena, lambda lines: [*lines, lines[3]])
    assert (look().lost, look().doubled) == (0, 1)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param(lambda lines: [lines[1], lines[0], *lines[2:]], "not in order", id="two lines change places"),
        pytest.param(
            lambda lines: [lines[0].replace(b"loaf 0", b"loaf 1"), *lines[1:]], "r-0 differs", id="another answer"
        ),
        pytest.param(lambda lines: [*lines[:-1], lines[-1][:-1]], "torn last line", id="a torn end"),
        pytest.param(
            lambda lines: [lines[0].replace(b'"line":1', b'"line":9'), *lines[1:]],
            "durable",
            id="a durable line changes",
        ),
    ],
)
def test_a_spoilt_file(
    arena: Arena, look: Callable[[], Findings], change: Callable[[list[bytes]], list[bytes]], said: str
) -> None:
    spoil(arena, change)
    assert said in "; ".join(look().broken)


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        pytest.param("DELETE FROM result WHERE seq = 3", "not what the journal says", id="a result is not there"),
        pytest.param("UPDATE result SET out_offset = 1 WHERE seq = 3", "seq 3 does not stand", id="another place"),
        pytest.param("UPDATE result SET status = 500 WHERE seq = 3", "seq 3 has another status", id="another status"),
        pytest.param("UPDATE micro_batch SET open = 1 WHERE mb = 1", "1 open in the journal", id="something open"),
    ],
)
def test_a_spoilt_journal(arena: Arena, look: Callable[[], Findings], statement: str, said: str) -> None:
    write(arena, statement)
    assert said in "; ".join(look().broken)


def test_blame_without_a_death(arena: Arena, look: Callable[[], Findings]) -> None:
    write(arena, "INSERT INTO loss VALUES (3, 't', 0, 0, 'outside')")
    assert look().innocents == 1


def test_what_is_left_in_redis(arena: Arena, look: Callable[[], Findings]) -> None:
    client = arena.client()
    client.hset(keys.micro_batch(JOB, 1), "st", "READY")
    assert "left in Redis" in "; ".join(look().broken)
    client.delete(keys.micro_batch(JOB, 1))
