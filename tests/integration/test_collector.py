"""The collector on a real server with workers made of real claims: N lines give N results in order, whatever breaks."""

import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any, cast

import pytest
import redis

from common import keys
from common.claim_types import Publication
from common.errors import ExitCode, InterruptedJobError, RefusedError, StoppedError
from common.wire import MicroBatch
from producer.job_directory import JobDirectory
from producer.job_spec import JobSpec
from producer.journal_reader import JournalReader
from tests.collecting import Bench, FakeEngineWorker, Running, quick_settings, write_input
from tests.servers import Server
from tests.waiting import wait_until


@pytest.fixture
def bench(tmp_path: Path, valkey: redis.Redis, valkey_server: Server) -> Bench:
    """A job of 100 good lines for model m."""
    return Bench(tmp_path, valkey_server, write_input(tmp_path / "in.jsonl", 100))


def losses(bench: Bench) -> list[tuple[int, str]]:
    """(seq, cause) of each loss in the journal."""
    with sqlite3.connect(bench.directory.journal_path) as journal:
        return journal.execute("SELECT seq, cause FROM loss ORDER BY seq").fetchall()


def test_a_job_goes_through(bench: Bench, valkey: redis.Redis, valkey_server: Server) -> None:
    with FakeEngineWorker(valkey_server) as worker:
        outcome = bench.run()
    assert not worker.errors
    bench.check_whole(100)
    assert (outcome.state, outcome.exit_code, outcome.status) == ("done", 0, "completed")
    counts = outcome.counts
    assert (counts.total, counts.fed, counts.done, counts.succeeded) == (100, 100, 100, 100)
    assert counts.prompt_tokens == 1000
    assert valkey.hget(keys.info(bench.job), "state") == b"done"
    assert valkey.hget(keys.info(bench.job), "exit") == b"0"
    assert 3000 < valkey.ttl(keys.info(bench.job)) <= 3600
    assert list(valkey.scan_iter(keys.prefix(bench.job) + "*")) == [keys.info(bench.job).encode()]
    assert not valkey.hexists(keys.JOBS, bench.job)
    again = bench.run()
    assert again == outcome, "a finished job ends as it did, without any work"


def test_a_vanished_worker_s_hold_expires_and_is_noted(bench: Bench, valkey_server: Server) -> None:
    vanished: list[int] = []

    def vanish_once(worker: FakeEngineWorker, job: str, batch: MicroBatch, token: str, got: int) -> None:
        if not vanished:
            vanished.append(batch.mb)
            worker.publish_some(job, batch, token, [0, 1])
        else:
            worker.publish_all(job, batch, token, got)

    with FakeEngineWorker(valkey_server, publish=vanish_once) as worker:
        outcome = bench.run()
    bench.check_whole(100)
    assert outcome.counts.redelivered == 1
    assert worker.claimed.count(vanished[0]) == 2
    assert losses(bench) == [(seq, "vanished") for seq in range(2, 8)], "what was published is not blamed"
    urgent = [mb for where, mb, _ in worker.hints if where == keys.queue("m", "d1")]
    assert urgent == [vanished[0]], "a redelivery goes before the whole window, to the pinned build"


def test_a_certificate_of_death_expires_at_once(tmp_path: Path, valkey: redis.Redis, valkey_server: Server) -> None:
    settings = quick_settings(valkey_server, expire_s=60.0)
    bench = Bench(tmp_path, valkey_server, write_input(tmp_path / "in.jsonl", 40), settings=settings)

    def die_once(worker: FakeEngineWorker, job: str, batch: MicroBatch, token: str, got: int) -> None:
        if len(worker.claimed) == 1:
            valkey.hset(keys.DIED, worker.incarnation, "self")
            worker.incarnation += "-next"
        else:
            worker.publish_all(job, batch, token, got)

    with FakeEngineWorker(valkey_server, publish=die_once):
        Running(bench.collector()).join(timeout_s=15)
    bench.check_whole(40)
    assert {cause for _, cause in losses(bench)} == {"self"}


def test_a_renewed_hold_is_left_alone(bench: Bench, valkey_server: Server) -> None:
    """A slow worker that renews keeps its hold for three times the expiry."""

    def slowly(worker: FakeEngineWorker, job: str, batch: MicroBatch, token: str, got: int) -> None:
        if len(worker.claimed) == 1:
            beats = iter(range(18))

            def renewed_long() -> bool:
                worker.claims.renew(job, [(batch.mb, token)])
                return next(beats, None) is None

            wait_until(lambda: renewed_long() or _pause(0.1), timeout_s=10, description="18 renewals")
        worker.publish_all(job, batch, token, got)

    with FakeEngineWorker(valkey_server, publish=slowly) as worker:
        outcome = bench.run()
    assert outcome.counts.redelivered == 0
    assert len(worker.claimed) == len(set(worker.claimed))


def _pause(duration_s: float) -> bool:
    """False, after `duration_s` seconds: the pace of a worker, not a wait for anything."""
    import threading

    return threading.Event().wait(duration_s)


def test_an_entry_that_comes_twice_counts_once(bench: Bench, valkey: redis.Redis, valkey_server: Server) -> None:
    def double(worker: FakeEngineWorker, job: str, batch: MicroBatch, token: str, got: int) -> None:
        worker.publish_all(job, batch, token, got)
        for _, fields in cast(Any, valkey.xrange(keys.results(job))):
            valkey.xadd(keys.results(job), fields)
            valkey.expire(keys.results(job), 1000)

    with FakeEngineWorker(valkey_server, publish=double):
        bench.run()
    bench.check_whole(100)


def test_a_flushed_redis_is_rebuilt_and_the_same_token_claims_again(
    bench: Bench, valkey: redis.Redis, valkey_server: Server
) -> None:
    reclaimed: list[str] = []

    def flush_once(worker: FakeEngineWorker, job: str, batch: MicroBatch, token: str, got: int) -> None:
        if len(worker.claimed) == 5:
            valkey.flushall(asynchronous=False)
            worker.show()

            def claim_again() -> bool:
                answer = worker.claims.claim(
                    job, batch.mb, token=token, worker=worker.incarnation, model="m", digest="d1"
                ).answer
                reclaimed.append(answer)
                return answer == "GO"

            wait_until(claim_again, timeout_s=10, description="the same token claims again")
        worker.publish_all(job, batch, token, got)

    with FakeEngineWorker(valkey_server, publish=flush_once) as worker:
        outcome = Running(bench.collector()).join(timeout_s=40)
    assert not worker.errors
    bench.check_whole(100)
    assert reclaimed[-1] == "GO"
    assert outcome.counts.redelivered == 0, "a flush blames nobody"


def test_stopped_and_continued(bench: Bench, valkey_server: Server) -> None:
    collectors: list[Running] = []

    def stop_soon(worker: FakeEngineWorker, job: str, batch: MicroBatch, token: str, got: int) -> None:
        if len(worker.claimed) == 4:
            collectors[0].collector.stop()
        worker.publish_all(job, batch, token, got)

    with FakeEngineWorker(valkey_server, publish=stop_soon):
        collectors.append(Running(bench.collector()))
        with pytest.raises(InterruptedJobError):
            collectors[0].join(timeout_s=10)
        before = bench.results()
        outcome = bench.run()
    bench.check_whole(100)
    assert bench.results()[: len(before)] == before
    assert outcome.counts.done == 100


def test_two_collectors_of_one_job_are_not_allowed(bench: Bench) -> None:
    first = Running(bench.collector())
    wait_until(lambda: bench.reasons, timeout_s=10, description="the first one works")
    with pytest.raises(RefusedError, match="pid"):
        bench.run()
    first.collector.stop()
    with pytest.raises(InterruptedJobError):
        first.join(timeout_s=5)


def test_a_newer_epoch_in_the_journal_ends_the_older_collector(bench: Bench, valkey: redis.Redis) -> None:
    older = Running(bench.collector())
    wait_until(lambda: bench.reasons, timeout_s=10, description="it works")
    with sqlite3.connect(bench.directory.journal_path) as journal:
        journal.execute("UPDATE checkpoint SET epoch = epoch + 1")
    valkey.hincrby(keys.info(bench.job), "epoch", 1)
    with pytest.raises(StoppedError, match="newer collector"):
        older.join(timeout_s=10)


def test_an_old_copy_of_the_journal_is_refused(bench: Bench, tmp_path: Path, valkey: redis.Redis) -> None:
    bench.run(until="fed")
    copy = tmp_path / "copy"
    shutil.copytree(bench.jobs, copy)
    bench.run(until="fed")
    before = valkey.hgetall(keys.info(bench.job))
    directory = JobDirectory.open(copy, bench.job)
    journal_before = JournalReader.open(directory.journal_path).checkpoint()
    bench.directory = directory
    with pytest.raises(RefusedError, match="old copy"):
        bench.run()
    assert valkey.hget(keys.info(bench.job), "epoch") == before[b"epoch"]
    assert JournalReader.open(directory.journal_path).checkpoint() == journal_before, "nothing is raised"


def test_a_lost_hint_is_sent_again(bench: Bench, valkey: redis.Redis, valkey_server: Server) -> None:
    bench.run(until="fed")
    with FakeEngineWorker(valkey_server, publish=lambda *_: None) as worker:
        lost = valkey.delete(*worker.queue_keys())
    assert lost
    with FakeEngineWorker(valkey_server):
        Running(bench.collector()).join(timeout_s=20)
    bench.check_whole(100)


def test_a_cut_tail_of_redis_log_is_offered_again(bench: Bench, valkey: redis.Redis, valkey_server: Server) -> None:
    """What the log's lost end held: some micro-batches, offered or being worked on, are absent at the same epoch."""

    def cut_once(worker: FakeEngineWorker, job: str, batch: MicroBatch, token: str, got: int) -> None:
        if len(worker.claimed) == 3:
            for mb in (batch.mb, batch.mb + 1, batch.mb + 2):
                valkey.srem(keys.open_set(job), str(mb))
                valkey.delete(keys.micro_batch(job, mb))
        else:
            worker.publish_all(job, batch, token, got)

    with FakeEngineWorker(valkey_server, publish=cut_once):
        Running(bench.collector()).join(timeout_s=40)
    bench.check_whole(100)


def publish_garbage(worker: FakeEngineWorker, job: str, batch: MicroBatch, token: str) -> None:
    """Publish position 0 as bytes that nobody can read."""
    worker.claims.publish(job, [Publication(batch.mb, token, 1, b"\x28\xb5garbage")])


def test_an_unreadable_entry_goes_to_quarantine_and_runs_again(bench: Bench, valkey_server: Server) -> None:
    def garbage_once(worker: FakeEngineWorker, job: str, batch: MicroBatch, token: str, got: int) -> None:
        if len(worker.claimed) == 2:
            publish_garbage(worker, job, batch, token)
        worker.publish_all(job, batch, token, got if len(worker.claimed) != 2 else got | 1)

    with FakeEngineWorker(valkey_server, publish=garbage_once):
        Running(bench.collector()).join(timeout_s=30)
    bench.check_whole(100)
    (kept,) = bench.directory.quarantine_path.iterdir()
    assert kept.read_bytes() == b"\x28\xb5garbage"


def test_what_is_never_readable_becomes_an_internal_error(bench: Bench, valkey_server: Server) -> None:
    def always_garbage(worker: FakeEngineWorker, job: str, batch: MicroBatch, token: str, got: int) -> None:
        if batch.mb == 2:
            publish_garbage(worker, job, batch, token)
            got |= 1
        worker.publish_all(job, batch, token, got)

    with FakeEngineWorker(valkey_server, publish=always_garbage):
        outcome = Running(bench.collector()).join(timeout_s=30)
    bench.check_whole(100)
    failed = [result for result in bench.results() if result["error"]]
    assert [(result["custom_id"], result["error"]["code"]) for result in failed] == [("r8", "internal_error")]
    assert failed[0]["response"]["status_code"] == 500
    assert outcome.exit_code == ExitCode.FOUND
    assert len(list(bench.directory.quarantine_path.iterdir())) == 3
    assert bench.directory.errors_path.read_text().count("\n") == 1


def test_a_foreign_result_never_reaches_the_journal(bench: Bench, valkey_server: Server) -> None:
    """An entry whose results are not of its micro-batch is as good as unreadable."""

    def mixed_up(worker: FakeEngineWorker, job: str, batch: MicroBatch, token: str, got: int) -> None:
        if len(worker.claimed) == 1:
            foreign = batch.requests[0]._replace(seq=99)
            other = batch.model_copy(update={"requests": (foreign, *batch.requests[1:])})
            worker.publish_all(job, other, token, got)
        else:
            worker.publish_all(job, batch, token, got)

    with FakeEngineWorker(valkey_server, publish=mixed_up):
        Running(bench.collector()).join(timeout_s=30)
    bench.check_whole(100)
    assert [result["id"] for result in bench.results()] == [f"{bench.job}-{seq}" for seq in range(100)]


def test_a_changed_input_is_refused_when_a_payload_is_built_again(bench: Bench, valkey: redis.Redis) -> None:
    bench.run(until="fed")
    source = Path(bench.directory.spec.input)
    source.write_text(source.read_text().replace("hello", "hullo"))
    with pytest.raises(RefusedError, match="changed"):
        bench.run()


def test_fail_above_keeps_exit_0(tmp_path: Path, valkey: redis.Redis, valkey_server: Server) -> None:
    source = write_input(tmp_path / "in.jsonl", 19)
    source.write_text(source.read_text() + "no json\n")
    for share, expected in ((0.05, 0), (0.04, 1)):
        folder = tmp_path / str(share)
        folder.mkdir()
        bench = Bench(folder, valkey_server, source, settings=quick_settings(valkey_server, fail_above=share))
        with FakeEngineWorker(valkey_server):
            assert bench.run().exit_code == expected


def test_spec_and_counts_tell_of_each_other(bench: Bench, valkey: redis.Redis) -> None:
    """What any host may read of a job that has not ended."""
    bench.run(until="fed")
    info = valkey.hgetall(keys.info(bench.job))
    manifest = json.loads(info[b"manifest"])
    assert (manifest["job"], manifest["output"]) == (bench.job, str(bench.directory.output_path))
    running = Running(bench.collector())

    def seen() -> object:
        return valkey.hget(keys.info(bench.job), "seen")

    first = seen()
    wait_until(lambda: seen() not in (None, first), timeout_s=10, description="seen moves")
    wait_until(lambda: valkey.hget(keys.info(bench.job), "fed") == b"100", timeout_s=10, description="counts stand")
    assert valkey.ttl(keys.info(bench.job)) > 6 * 24 * 3600
    running.collector.stop()
    with pytest.raises(InterruptedJobError):
        running.join(timeout_s=5)
    assert isinstance(bench.directory.spec, JobSpec)
