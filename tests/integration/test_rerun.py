"""Reruns with a real Redis and a real journal: what runs again, what the files and the counts become, what is kept."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection
from pathlib import Path

import pytest
import redis

from common.claim_types import Publication
from common.errors import ErrorKind, RefusedError, StoppedError
from common.wire import MicroBatch, Result, pack_results
from producer.input_file import sync_folder
from producer.journal import Journal
from producer.journal_reader import JournalReader
from producer.rerun import Begun, begin_rerun
from producer.selection import Selection
from producer.steering import Wish
from producer.suspects import Standing, judge
from producer.wish_file import leave_wish
from tests.collecting import Bench, FakeEngineWorker, write_input
from tests.failing import failing, result_of
from tests.processes import ROOT, environment
from tests.servers import Server

ROWS = 40


def ids(*numbers: int) -> set[str]:
    return {f"r{number}" for number in numbers}


class Fails(Bench):
    """A job whose first run has failures, finished."""

    def go(self, bad: Collection[str], *, kind: ErrorKind = ErrorKind.OVERLOADED) -> int:
        """Run a collector to the job's end beside a worker that fails `bad`; the exit code."""
        with FakeEngineWorker(self.server, publish=failing(bad, kind=kind)) as worker:
            outcome = self.run()
        assert not worker.errors
        return outcome.exit_code

    def begin(self, *, codes: Collection[str] = (), statuses: Collection[str] = (), file: Path | None = None) -> Begun:
        """Begin a rerun."""
        return begin_rerun(self.directory, Selection.make(codes, statuses), ids=file)

    def lines(self) -> list[bytes]:
        """The ordered file's."""
        return self.directory.output_path.read_bytes().splitlines()

    def check(self, rounds: dict[int, str], bad: Collection[str], *, total: int = ROWS) -> None:
        """Every file and figure agrees: `rounds` says which good lines are not of the first round, `bad` which fail."""
        self.check_whole(total)
        for seq, result in enumerate(self.results()):
            if result["custom_id"] in bad:
                assert result["error"]["code"], seq
            else:
                assert result["response"]["body"]["text"].startswith(rounds.get(seq, "round 0")), seq
        errors = self.directory.errors_path.read_bytes().splitlines()
        assert [json.loads(line)["custom_id"] for line in errors] == sorted(bad, key=lambda name: int(name[1:]))
        usage = [result["response"]["body"].get("usage", {}) for result in self.results()]
        with JournalReader.open(self.directory.journal_path) as journal:
            checkpoint = journal.checkpoint()
            counts = checkpoint.counts
            assert (counts.total, counts.fed, counts.done) == (total, total, total)
            assert (counts.failed, sum(counts.failures.values())) == (len(bad), len(bad))
            assert counts.prompt_tokens == sum(each.get("prompt_tokens", 0) for each in usage)
            assert counts.completion_tokens == sum(each.get("completion_tokens", 0) for each in usage)
            assert checkpoint.out_bytes == self.directory.output_path.stat().st_size
            assert checkpoint.error_bytes == self.directory.errors_path.stat().st_size
            for seq, line in enumerate(self.lines()):
                assert journal.result_line(seq, output=self.directory.output_path) == line


@pytest.fixture
def job(tmp_path: Path, valkey: redis.Redis, valkey_server: Server) -> Fails:
    """A finished job of 40 requests, three of which failed."""
    job = Fails(tmp_path, valkey_server, write_input(tmp_path / "in.jsonl", ROWS))
    assert job.go(ids(0, 7, 39)) == 1
    return job


def test_what_failed_runs_again_and_the_old_file_is_kept(job: Fails, tmp_path: Path) -> None:
    before = job.directory.output_path.read_bytes()
    assert job.begin() == Begun(1, 3, {})
    assert job.go(ids(39)) == 1
    job.check({0: "round 1", 7: "round 1"}, ids(39))
    assert (tmp_path / "out.1.jsonl").read_bytes() == before
    second = job.directory.output_path.read_bytes()
    assert job.begin(codes=["overloaded"]) == Begun(2, 1, {})
    assert job.go(()) == 0
    job.check({0: "round 1", 7: "round 1", 39: "round 2"}, ())
    assert (tmp_path / "out.2.jsonl").read_bytes() == second
    assert (tmp_path / "out.1.jsonl").read_bytes() == before
    assert sorted(path.name for path in tmp_path.glob("out*")) == ["out.1.jsonl", "out.2.jsonl", "out.jsonl"]


POINTS = [
    pytest.param("producer.journal_rounds:JournalRounds.take_again", 1, id="chosen, nothing fed"),
    pytest.param("common.claims:Claims.offer", 1, id="fed, not offered"),
    pytest.param("producer.journal:Journal.add_results", 3, id="received, not committed"),
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
def test_killed_between_two_steps(job: Fails, tmp_path: Path, target: str, number: int) -> None:
    """Whatever stands there then, `get` gives whole lines, and the same selection goes on: each row once."""
    before = job.lines()
    job.begin()
    kill_at(job, target, number)
    with JournalReader.open(job.directory.journal_path) as journal:
        is_done = journal.checkpoint().state == "done"
        for seq, line in enumerate(before):
            now = journal.result_line(seq, output=job.directory.output_path)
            assert now == line or (seq in (0, 7) and now is not None and b"round 1round 1" in now), seq
    if not is_done:
        assert job.begin().round == 1, "the same selection goes on"
    assert job.go(ids(39)) == 1
    job.check({0: "round 1", 7: "round 1"}, ids(39))
    assert (tmp_path / "out.1.jsonl").read_bytes().splitlines() == before
    assert sorted(path.name for path in tmp_path.glob("out*")) == ["out.1.jsonl", "out.jsonl"]
    assert not list(job.directory.errors_path.parent.glob("*.new"))


def kill_at(job: Fails, target: str, number: int) -> None:
    """Run a collector that ends by SIGKILL before the `number`-th call of `target`."""
    arguments = [job.server.url, job.jobs, job.job, target, number]
    with FakeEngineWorker(job.server, publish=failing(ids(39))):
        killed = subprocess.run(
            [sys.executable, "-m", "tests.crashing", *map(str, arguments)],
            cwd=ROOT,
            env=environment(),
            timeout=60,
            check=False,
        )
    assert killed.returncode == -signal.SIGKILL, f"{target} was not called {number} times"


def test_options_narrow_each_other(job: Fails, tmp_path: Path) -> None:
    listed = tmp_path / "ids.txt"
    listed.write_text("\ufeffr7 \n\n  r3\nr7\n", encoding="utf-8")
    assert job.begin(codes=["overloaded"], statuses=["5XX"], file=listed) == Begun(1, 1, {})
    assert job.go(()) == 1
    job.check({7: "round 1"}, ids(0, 39))
    assert job.begin(file=listed) == Begun(2, 2, {}), "good ones too, by name"
    assert job.go(ids(3)) == 1
    job.check({7: "round 2"}, ids(0, 3, 39))
    assert job.begin(statuses=["200"], file=listed).requests == 1
    assert job.go(()) == 1
    job.check({7: "round 3"}, ids(0, 3, 39))
    assert job.begin(codes=["timeout"], statuses=["503"]) == Begun(3, 0, {}), "nothing is both"
    assert job.begin(codes=["timeout", "overloaded"], statuses=["429", "503"]).requests == 3


def test_an_unknown_id_is_named_and_nothing_begins(job: Fails, tmp_path: Path) -> None:
    listed = tmp_path / "ids.txt"
    listed.write_text("".join(f"{name}\n" for name in ("r1", "nobody", *(f"x{n}" for n in range(20)))))
    with pytest.raises(RefusedError, match=r"'nobody'.* and 11 more"):
        job.begin(file=listed)
    with pytest.raises(RefusedError, match="cannot be read"):
        job.begin(file=tmp_path / "missing.txt")
    job.check({}, ids(0, 7, 39))


def test_only_a_finished_job_runs_again(job: Fails) -> None:
    job.begin(codes=["overloaded"])
    with pytest.raises(RefusedError, match="not finished") as refused:
        job.begin()
    assert refused.value.do == f"producer resume {job.job}"
    assert job.begin(codes=["overloaded"]) == Begun(1, 3, {})


def test_lines_that_never_became_a_request_are_left_out(
    tmp_path: Path, valkey: redis.Redis, valkey_server: Server
) -> None:
    source = write_input(tmp_path / "in.jsonl", 4)
    other = b'{"custom_id": "r5", "prompt": "x", "model": "unknown"}\n'
    source.write_bytes(source.read_bytes() + b"not json\n" + source.read_bytes().splitlines()[1] + b"\n" + other)
    job = Fails(tmp_path, valkey_server, source)
    assert job.go(ids(2)) == 1
    left_out = {"invalid_json": 1, "duplicate_custom_id": 1, "model_not_found": 1}
    assert job.begin(statuses=["4xx"]) == Begun(0, 0, left_out)
    assert job.begin() == Begun(1, 1, left_out)
    assert job.go(()) == 1
    assert [result["response"]["status_code"] for result in job.results()] == [200, 200, 200, 200, 400, 400, 404]


def test_a_cancelled_rerun_keeps_what_it_has_and_what_was_there(job: Fails, tmp_path: Path) -> None:
    """One result comes in before the cancel; the rest keep theirs, and the next rerun takes them up."""
    before = job.lines()
    job.begin()

    def publish(worker: FakeEngineWorker, name: str, batch: MicroBatch, token: str, got: int) -> None:
        result = result_of(name, batch, batch.requests[0], None)
        worker.claims.publish(name, [Publication(batch.mb, token, 1, pack_results([result]))])
        leave_wish(job.directory.want_path, Wish.make("cancel"))
        while worker.claims.renew(name, [(batch.mb, token)]).state not in ("cancelling", "sealed", "done"):
            time.sleep(0.02)
        worker.claims.release(name, batch.mb, token=token)

    with FakeEngineWorker(job.server, publish=publish) as worker:
        outcome = job.run()
    assert not worker.errors
    assert (outcome.status, outcome.exit_code) == ("cancelled", 1)
    job.check({0: "round 1"}, ids(7, 39))
    assert (tmp_path / "out.1.jsonl").read_bytes().splitlines() == before
    assert job.begin() == Begun(2, 2, {})
    assert job.go(()) == 0
    job.check({0: "round 1", 7: "round 2", 39: "round 2"}, ())


def test_what_was_cancelled_runs_again_as_if_for_the_first_time(
    tmp_path: Path, valkey: redis.Redis, valkey_server: Server
) -> None:
    """Its lines may never have been judged: one names a model that nobody serves."""
    source = write_input(tmp_path / "in.jsonl", 4)
    source.write_bytes(source.read_bytes() + b'{"custom_id": "r4", "prompt": "x", "model": "unknown"}\n')
    job = Fails(tmp_path, valkey_server, source, model=None)
    leave_wish(job.directory.want_path, Wish.make("cancel"))
    assert job.run().counts.failures == {"cancelled": 5}
    assert job.begin().requests == 5
    assert job.go(()) == 1
    assert [result["response"]["status_code"] for result in job.results()] == [200, 200, 200, 200, 404]
    assert job.begin(codes=["model_not_found"]) == Begun(1, 0, {"model_not_found": 1})


def test_a_row_goes_to_the_model_that_it_went_to(tmp_path: Path, valkey: redis.Redis, valkey_server: Server) -> None:
    """A line that names none had the only one there was; by now there are two."""
    job = Fails(tmp_path, valkey_server, write_input(tmp_path / "in.jsonl", 8, model=None), model=None)
    assert job.go(ids(3)) == 1
    job.begin()
    with FakeEngineWorker(job.server, publish=failing(())), FakeEngineWorker(job.server, models=("a",)):
        assert job.run().exit_code == 0
    assert job.results()[3]["meta"]["model"] == "m"


def test_losses_of_an_earlier_round_are_not_held_against_a_request(job: Fails) -> None:
    with Journal.open(job.directory.journal_path) as journal:
        with journal.writing():
            journal.add_loss(1, [7], token="t", armed=True, cause="self")
        assert judge(journal.losses([7])[7]) is Standing.POISON
    job.begin()
    with Journal.open(job.directory.journal_path) as journal:
        assert judge(journal.losses([7])[7]) is Standing.INNOCENT


def test_a_late_result_of_an_earlier_round_changes_nothing(job: Fails) -> None:
    """A rerun that was given up without Redis may have left one there."""
    job.begin()
    with Journal.open(job.directory.journal_path) as journal:
        late = Result(7, 0, 200, "", 1, 1, 1, b"late")
        with journal.writing():
            assert journal.add_results([late, late._replace(round=9)]) == []
        assert journal.counts.duplicates == 2


def test_the_old_file_keeps_its_mode_and_a_taken_name_is_refused(job: Fails, tmp_path: Path) -> None:
    output, kept = job.directory.output_path, tmp_path / "out.1.jsonl"
    kept.write_text("precious\n")
    with pytest.raises(RefusedError, match="another is there"):
        job.begin()
    kept.unlink()
    output.chmod(0o644)
    job.begin()
    kept.write_text("precious\n")
    with FakeEngineWorker(job.server, publish=failing(())), pytest.raises(StoppedError, match="another is there"):
        job.run()
    assert kept.read_text() == "precious\n"
    kept.unlink()
    assert job.run().exit_code == 0
    job.check(dict.fromkeys((0, 7, 39), "round 1"), ())
    assert (output.stat().st_mode & 0o777, kept.stat().st_mode & 0o777) == (0o644, 0o644)
    assert job.directory.errors_path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("point", [4, 5])
def test_a_file_system_without_hard_links(
    job: Fails, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: int
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
    before = job.lines()
    job.begin()
    with FakeEngineWorker(job.server, publish=failing(())):
        with pytest.raises(StoppedError, match="the disk fails"):
            job.run()
        assert job.run().exit_code == 0
    job.check(dict.fromkeys((0, 7, 39), "round 1"), ())
    assert (tmp_path / "out.1.jsonl").read_bytes().splitlines() == before


def test_an_output_behind_a_link_is_replaced_where_it_is(
    tmp_path: Path, valkey: redis.Redis, valkey_server: Server
) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "out.jsonl").symlink_to(tmp_path / "far" / "real.jsonl")
    job = Fails(tmp_path, valkey_server, write_input(tmp_path / "in.jsonl", 8))
    job.go(ids(2))
    job.begin()
    assert job.go(()) == 0
    job.check({2: "round 1"}, (), total=8)
    assert (tmp_path / "out.jsonl").is_symlink()
    assert sorted(path.name for path in (tmp_path / "far").iterdir()) == ["real.1.jsonl", "real.jsonl"]


def test_a_cut_output_is_refused_before_anything_begins(job: Fails) -> None:
    os.truncate(job.directory.output_path, 100)
    with pytest.raises(RefusedError, match="has 100 bytes"):
        job.begin()
    with JournalReader.open(job.directory.journal_path) as journal:
        assert (journal.checkpoint().state, journal.checkpoint().round) == ("done", 0)
