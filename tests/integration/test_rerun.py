"""Reruns with a real Redis and a real journal: what runs again, what the files and the counts become, what is kept."""

import json
from collections.abc import Collection
from pathlib import Path

import pytest
import redis

from common.errors import ErrorKind
from producer.journal_reader import JournalReader
from producer.rerun import Begun, begin_rerun
from producer.selection import Selection
from tests.collecting import Bench, FakeEngineWorker, write_input
from tests.failing import failing
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
