"""Reruns with a real Redis and a real journal: what runs again, what the files and the counts become, what is kept."""

import os
import time
from pathlib import Path

import pytest
import redis

from common.claim_types import Publication
from common.errors import RefusedError
from common.wire import MicroBatch, Result, pack_results
from producer.journal import Journal
from producer.journal_reader import JournalReader
from producer.rerun import Begun
from producer.steering import Wish
from producer.suspects import Standing, judge
from producer.wish_file import leave_wish
from tests.collecting import FakeEngineWorker, write_input
from tests.failing import ROWS, Failing, failing, ids, result_of
from tests.servers import Server


def test_what_failed_runs_again_and_the_old_file_is_kept(failing_job: Failing, tmp_path: Path) -> None:
    before = failing_job.directory.output_path.read_bytes()
    assert failing_job.begin() == Begun(1, 3, {})
    assert failing_job.go(ids(39)) == 1
    failing_job.check({0: "round 1", 7: "round 1"}, ids(39))
    assert (tmp_path / "out.1.jsonl").read_bytes() == before
    second = failing_job.directory.output_path.read_bytes()
    assert failing_job.begin(codes=["overloaded"]) == Begun(2, 1, {})
    assert failing_job.go(()) == 0
    failing_job.check({0: "round 1", 7: "round 1", 39: "round 2"}, ())
    assert (tmp_path / "out.2.jsonl").read_bytes() == second
    assert (tmp_path / "out.1.jsonl").read_bytes() == before
    assert sorted(path.name for path in tmp_path.glob("out*")) == ["out.1.jsonl", "out.2.jsonl", "out.jsonl"]


def test_options_narrow_each_other(failing_job: Failing, tmp_path: Path) -> None:
    listed = tmp_path / "ids.txt"
    listed.write_text("\ufeffr7 \n\n  r3\nr7\n", encoding="utf-8")
    assert failing_job.begin(codes=["overloaded"], statuses=["5XX"], file=listed) == Begun(1, 1, {})
    assert failing_job.go(()) == 1
    failing_job.check({7: "round 1"}, ids(0, 39))
    assert failing_job.begin(file=listed) == Begun(2, 2, {}), "good ones too, by name"
    assert failing_job.go(ids(3)) == 1
    failing_job.check({7: "round 2"}, ids(0, 3, 39))
    assert failing_job.begin(statuses=["200"], file=listed).requests == 1
    assert failing_job.go(()) == 1
    failing_job.check({7: "round 3"}, ids(0, 3, 39))
    assert failing_job.begin(codes=["timeout"], statuses=["503"]) == Begun(3, 0, {}), "nothing is both"
    assert failing_job.begin(codes=["timeout", "overloaded"], statuses=["429", "503"]).requests == 3


def test_an_unknown_id_is_named_and_nothing_begins(failing_job: Failing, tmp_path: Path) -> None:
    listed = tmp_path / "ids.txt"
    listed.write_text("".join(f"{name}\n" for name in ("r1", "nobody", *(f"x{n}" for n in range(20)))))
    with pytest.raises(RefusedError, match=r"'nobody'.* and 11 more"):
        failing_job.begin(file=listed)
    with pytest.raises(RefusedError, match="cannot be read"):
        failing_job.begin(file=tmp_path / "missing.txt")
    failing_job.check({}, ids(0, 7, 39))


def test_only_a_finished_job_runs_again(failing_job: Failing) -> None:
    failing_job.begin(codes=["overloaded"])
    with pytest.raises(RefusedError, match="not finished") as refused:
        failing_job.begin()
    assert refused.value.do == f"producer resume {failing_job.job}"
    assert failing_job.begin(codes=["overloaded"]) == Begun(1, 3, {})


def test_lines_that_never_became_a_request_are_left_out(
    tmp_path: Path, valkey: redis.Redis, valkey_server: Server
) -> None:
    source = write_input(tmp_path / "in.jsonl", 4)
    other = b'{"custom_id": "r5", "prompt": "x", "model": "unknown"}\n'
    source.write_bytes(source.read_bytes() + b"not json\n" + source.read_bytes().splitlines()[1] + b"\n" + other)
    job = Failing(tmp_path, valkey_server, source)
    assert job.go(ids(2)) == 1
    left_out = {"invalid_json": 1, "duplicate_custom_id": 1, "model_not_found": 1}
    assert job.begin(statuses=["4xx"]) == Begun(0, 0, left_out)
    assert job.begin() == Begun(1, 1, left_out)
    assert job.go(()) == 1
    assert [result["response"]["status_code"] for result in job.results()] == [200, 200, 200, 200, 400, 400, 404]


def test_a_cancelled_rerun_keeps_what_it_has_and_what_was_there(failing_job: Failing, tmp_path: Path) -> None:
    """One result comes in before the cancel; the rest keep theirs, and the next rerun takes them up."""
    before = failing_job.lines()
    failing_job.begin()

    def publish(worker: FakeEngineWorker, name: str, batch: MicroBatch, token: str, got: int) -> None:
        result = result_of(name, batch, batch.requests[0], None)
        worker.claims.publish(name, [Publication(batch.mb, token, 1, pack_results([result]))])
        leave_wish(failing_job.directory.want_path, Wish.make("cancel"))
        while worker.claims.renew(name, [(batch.mb, token)]).state not in ("cancelling", "sealed", "done"):
            time.sleep(0.02)
        worker.claims.release(name, batch.mb, token=token)

    with FakeEngineWorker(failing_job.server, publish=publish) as worker:
        outcome = failing_job.run()
    assert not worker.errors
    assert (outcome.status, outcome.exit_code) == ("cancelled", 1)
    failing_job.check({0: "round 1"}, ids(7, 39))
    assert (tmp_path / "out.1.jsonl").read_bytes().splitlines() == before
    assert failing_job.begin() == Begun(2, 2, {})
    assert failing_job.go(()) == 0
    failing_job.check({0: "round 1", 7: "round 2", 39: "round 2"}, ())


def test_a_rerun_is_paused_and_resumed_like_a_first_run(failing_job: Failing) -> None:
    failing_job.begin()
    leave_wish(failing_job.directory.want_path, Wish.make("pause"))
    paused = failing_job.run()
    assert (paused.state, paused.exit_code, paused.counts.done) == ("paused", 3, ROWS - 3)
    leave_wish(failing_job.directory.want_path, Wish.make("resume"))
    assert failing_job.go(()) == 0
    failing_job.check(dict.fromkeys((0, 7, 39), "round 1"), ())


def test_what_was_cancelled_runs_again_as_if_for_the_first_time(
    tmp_path: Path, valkey: redis.Redis, valkey_server: Server
) -> None:
    """Its lines may never have been judged: one names a model that nobody serves."""
    source = write_input(tmp_path / "in.jsonl", 4)
    source.write_bytes(source.read_bytes() + b'{"custom_id": "r4", "prompt": "x", "model": "unknown"}\n')
    job = Failing(tmp_path, valkey_server, source, model=None)
    leave_wish(job.directory.want_path, Wish.make("cancel"))
    assert job.run().counts.failures == {"cancelled": 5}
    assert job.begin().requests == 5
    assert job.go(()) == 1
    assert [result["response"]["status_code"] for result in job.results()] == [200, 200, 200, 200, 404]
    assert job.begin(codes=["model_not_found"]) == Begun(1, 0, {"model_not_found": 1})


def test_a_row_goes_to_the_model_that_it_went_to(tmp_path: Path, valkey: redis.Redis, valkey_server: Server) -> None:
    """A line that names none had the only one there was; by now there are two."""
    job = Failing(tmp_path, valkey_server, write_input(tmp_path / "in.jsonl", 8, model=None), model=None)
    assert job.go(ids(3)) == 1
    job.begin()
    with FakeEngineWorker(job.server, publish=failing(())), FakeEngineWorker(job.server, models=("a",)):
        assert job.run().exit_code == 0
    assert job.results()[3]["meta"]["model"] == "m"


def test_losses_of_an_earlier_round_are_not_held_against_a_request(failing_job: Failing) -> None:
    with Journal.open(failing_job.directory.journal_path) as journal:
        with journal.writing():
            journal.add_loss(1, [7], token="t", armed=True, cause="self")
        assert judge(journal.losses([7])[7]) is Standing.POISON
    failing_job.begin()
    with Journal.open(failing_job.directory.journal_path) as journal:
        assert judge(journal.losses([7])[7]) is Standing.INNOCENT


def test_a_late_result_of_an_earlier_round_changes_nothing(failing_job: Failing) -> None:
    """A rerun that was given up without Redis may have left one there."""
    failing_job.begin()
    with Journal.open(failing_job.directory.journal_path) as journal:
        late = Result(7, 0, 200, "", 1, 1, 1, b"late")
        with journal.writing():
            assert journal.add_results([late, late._replace(round=9)]) == []
        assert journal.counts.duplicates == 2


def test_a_cut_output_is_refused_before_anything_begins(failing_job: Failing) -> None:
    os.truncate(failing_job.directory.output_path, 100)
    with pytest.raises(RefusedError, match="has 100 bytes"):
        failing_job.begin()
    with JournalReader.open(failing_job.directory.journal_path) as journal:
        assert (journal.checkpoint().state, journal.checkpoint().round) == ("done", 0)
