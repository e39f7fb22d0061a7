"""The end of a rerun, stopped between any two of its steps, and what the files are called then."""

import errno
from pathlib import Path

import pytest
import redis

from common.errors import RefusedError, StoppedError
from producer.input_file import sync_folder
from producer.journal import Journal
from producer.journal_reader import JournalReader, beside
from producer.rewriting import Rewriting
from tests.collecting import FakeEngineWorker, write_input
from tests.failing import Failing, failing, ids
from tests.servers import Server

POINTS = [
    pytest.param("producer.journal_rounds:JournalRounds.take_again", 1, id="chosen, nothing fed"),
    pytest.param("common.claims:Claims.offer", 1, id="fed, not offered"),
    pytest.param("producer.receiver:Receiver.settle", 1, id="received, not committed"),
    pytest.param("common.claims:Claims.close", 1, id="committed, not closed in Redis"),
    pytest.param("producer.rewriting:_replace_lines", 1, id="all received, nothing written"),
    pytest.param("producer.rewriting:_read", 2, id="in the middle of the new file"),
    pytest.param("producer.rewriting:sync_folder", 1, id="the new file written, its name not synced"),
    pytest.param("producer.journal_rounds:JournalRounds.show_round", 1, id="the new file there, not committed"),
    pytest.param("producer.rewriting:Rewriting.put_in_place", 1, id="committed, nothing renamed"),
    pytest.param("producer.rewriting:sync_folder", 2, id="errors beside"),
    pytest.param("producer.rewriting:sync_folder", 3, id="errors in place"),
    pytest.param("producer.rewriting:sync_folder", 4, id="the old file kept under its new name"),
    pytest.param("producer.rewriting:sync_folder", 5, id="the new file in place"),
    pytest.param("producer.journal:Journal.finish", 1, id="all in place, not finished"),
    pytest.param("producer.collector:withdraw", 1, id="finished, still in Redis"),
]


@pytest.mark.parametrize(("target", "number"), POINTS)
def test_killed_between_two_steps(failing_job: Failing, tmp_path: Path, target: str, number: int) -> None:
    """Whatever stands there then, `get` gives whole lines, and the same selection goes on: each row once."""
    before = failing_job.lines()
    failing_job.begin()
    kill_at(failing_job, target, number)
    with JournalReader.open(failing_job.directory.journal_path) as journal:
        is_done = journal.checkpoint().state == "done"
        for seq, line in enumerate(before):
            now = journal.result_line(seq, output=failing_job.directory.output_path)
            assert now == line or (seq in (0, 7) and now is not None and b"round 1round 1" in now), seq
    if not is_done:
        assert failing_job.begin().round == 1, "the same selection goes on"
    assert failing_job.go(ids(39)) == 1
    failing_job.check({0: "round 1", 7: "round 1"}, ids(39))
    assert (tmp_path / "out.1.jsonl").read_bytes().splitlines() == before
    assert sorted(path.name for path in tmp_path.glob("out*")) == ["out.1.jsonl", "out.jsonl"]
    assert not list(failing_job.directory.errors_path.parent.glob("*.new"))


def kill_at(failing_job: Failing, target: str, number: int) -> None:
    """Run a collector that ends by SIGKILL before the `number`-th call of `target`."""
    with FakeEngineWorker(failing_job.server, publish=failing(ids(39))):
        failing_job.crash(target, number)


def test_a_collector_that_stood_still_touches_no_file(failing_job: Failing) -> None:
    """A newer one is in the middle of its own new file."""
    output, errors = failing_job.directory.output_path, failing_job.directory.errors_path
    failing_job.begin()
    with Journal.open(failing_job.directory.journal_path) as stale:
        with Journal.open(failing_job.directory.journal_path) as newer:
            newer.prepare()
            newer.take()
        beside(output).write_text("the newer one's")
        before = output.read_bytes(), errors.read_bytes()
        rewriting = Rewriting(output, errors)
        with pytest.raises(StoppedError, match="newer collector"):
            rewriting.write(stale)
        stale.is_broken, stale.shown = False, stale.round
        with pytest.raises(StoppedError, match="newer collector"):
            rewriting.put_in_place(stale)
    assert beside(output).read_text() == "the newer one's"
    assert (output.read_bytes(), errors.read_bytes()) == before


def test_the_old_file_keeps_its_mode_and_a_taken_name_is_refused(failing_job: Failing, tmp_path: Path) -> None:
    output, kept = failing_job.directory.output_path, tmp_path / "out.1.jsonl"
    kept.write_text("precious\n")
    with pytest.raises(RefusedError, match="another is there"):
        failing_job.begin()
    kept.unlink()
    output.chmod(0o644)
    failing_job.begin()
    kept.write_text("precious\n")
    with (
        FakeEngineWorker(failing_job.server, publish=failing(())),
        pytest.raises(StoppedError, match="another is there"),
    ):
        failing_job.run()
    assert kept.read_text() == "precious\n"
    kept.unlink()
    assert failing_job.run().exit_code == 0
    failing_job.check(dict.fromkeys((0, 7, 39), "round 1"), ())
    assert (output.stat().st_mode & 0o777, kept.stat().st_mode & 0o777) == (0o644, 0o644)
    assert failing_job.directory.errors_path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("point", [4, 5])
def test_a_file_system_without_hard_links(
    failing_job: Failing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: int
) -> None:
    """The old file is renamed then; a start between the two renames finds none in its place, and goes on."""
    calls = 0

    def refuse(_self: Path, _target: Path) -> None:
        raise PermissionError(errno.EPERM, "no hard links here")

    def fail_once(path: Path) -> None:
        nonlocal calls
        calls += 1
        if calls == point:
            raise OSError(errno.EIO, "the disk fails")
        sync_folder(path)

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    monkeypatch.setattr("producer.rewriting.sync_folder", fail_once)
    before = failing_job.lines()
    failing_job.begin()
    with FakeEngineWorker(failing_job.server, publish=failing(())):
        with pytest.raises(StoppedError, match="the disk fails"):
            failing_job.run()
        assert failing_job.run().exit_code == 0
    failing_job.check(dict.fromkeys((0, 7, 39), "round 1"), ())
    assert (tmp_path / "out.1.jsonl").read_bytes().splitlines() == before


def test_an_output_behind_a_link_is_replaced_where_it_is(
    tmp_path: Path, valkey: redis.Redis, valkey_server: Server
) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "out.jsonl").symlink_to(tmp_path / "far" / "real.jsonl")
    job = Failing(tmp_path, valkey_server, write_input(tmp_path / "in.jsonl", 8))
    job.go(ids(2))
    job.begin()
    assert job.go(()) == 0
    job.check({2: "round 1"}, (), total=8)
    assert (tmp_path / "out.jsonl").is_symlink()
    assert sorted(path.name for path in (tmp_path / "far").iterdir()) == ["real.1.jsonl", "real.jsonl"]
