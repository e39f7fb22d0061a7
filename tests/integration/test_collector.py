"""The collector on a real server with workers made of real claims: N lines give N results in order, whatever breaks."""

import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any, cast

import pytest
import redis

from common import keys
from common.errors import InterruptedJobError, RefusedError, StoppedError
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


def test_an_entry_that_comes_twice_counts_once(bench: Bench, valkey: redis.Redis, valkey_server: Server) -> None:
    def double(worker: FakeEngineWorker, job: str, batch: MicroBatch, token: str, got: int) -> None:
        worker.publish_all(job, batch, token, got)
        for _, fields in cast(Any, valkey.xrange(keys.results(job))):
            valkey.xadd(keys.results(job), fields)
            valkey.expire(keys.results(job), 1000)

    with FakeEngineWorker(valkey_server, publish=double):
        bench.run()
    bench.check_whole(100)


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
