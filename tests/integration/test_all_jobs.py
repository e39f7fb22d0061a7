"""`collect --all --follow`: a job that somebody else has is spoken of once, and taken up when it is free."""

import io
from pathlib import Path

import pytest
import redis
from rich.console import Console

from producer.all_jobs import AllJobs
from producer.job_lock import JobLock
from tests.collecting import Bench, write_input
from tests.servers import Server
from tests.waiting import wait_until


def test_a_job_that_somebody_has_is_taken_up_when_it_is_free(
    valkey: redis.Redis, valkey_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("producer.all_jobs.AGAIN_S", 0.0)
    bench, said = Bench(tmp_path, valkey_server, write_input(tmp_path / "in.jsonl", 1)), io.StringIO()
    settings = bench.settings.model_copy(update={"jobs": bench.jobs})
    all_jobs = AllJobs(settings, Console(file=said), follow=True)
    with JobLock(bench.directory.lock_path):
        (found,) = all_jobs._find()
        all_jobs._start(found)
        wait_until(lambda: "already being worked on" in said.getvalue(), timeout_s=20, description="it says who")
        wait_until(lambda: bench.job in all_jobs._ended_at, timeout_s=20, description="its thread has ended")
        assert all_jobs._find() == []
    assert [again.spec.job for again in all_jobs._find()] == [bench.job]
