"""What a collector says of its job while it runs, and how a deadline hurries it: on a real server."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import redis

from common.errors import InterruptedJobError
from common.wire import MicroBatch
from producer.deadline import Deadline
from producer.deadline_file import leave_deadline
from producer.journal_reader import read_checkpoint
from producer.outlook import Outlook
from producer.status import read_remote, read_status
from tests.collecting import SEPARATOR, Bench, FakeEngineWorker, Running, quick_settings, write_input
from tests.servers import Server
from tests.waiting import wait_until

ROWS = 400


@pytest.fixture
def bench(tmp_path: Path, valkey: redis.Redis, valkey_server: Server) -> Bench:
    """A job of 400 rows; looks are quick."""
    settings = quick_settings(valkey_server, batch_size=4)
    return Bench(tmp_path, valkey_server, write_input(tmp_path / "in.jsonl", ROWS), settings=settings)


def take_time(worker: FakeEngineWorker, job: str, batch: MicroBatch, token: str, got: int) -> None:
    """About 40 requests a second, however many travel together."""
    time.sleep(0.025 * len(batch.requests))
    worker.publish_all(job, batch, token, got)


@pytest.fixture
def slow(bench: Bench) -> Iterator[FakeEngineWorker]:
    """A worker that does about 40 requests a second."""
    with FakeEngineWorker(bench.server, publish=take_time, target=16) as worker:
        yield worker


def due(bench: Bench, seconds: float) -> None:
    """The job is to be done so many seconds from now."""
    leave_deadline(
        bench.directory.deadline_path, Deadline(f"in {seconds} s", datetime.now(UTC) + timedelta(seconds=seconds))
    )


def outlook(bench: Bench) -> Outlook | None:
    """What the collector last said."""
    return Outlook.of(read_remote(bench.server.client(), bench.job).get(bench.job, {}))


def lists_of(worker: FakeEngineWorker) -> set[str]:
    """The priorities of the hints it took."""
    return {where.rpartition(SEPARATOR)[2] for where, _, _ in worker.hints}


def stop(running: Running) -> None:
    """End the collector."""
    running.collector.stop()
    with pytest.raises(InterruptedJobError):
        running.join()


def test_a_job_without_a_deadline_is_in_no_hurry(bench: Bench, slow: FakeEngineWorker) -> None:
    running = Running(bench.collector())
    wait_until(
        lambda: (said := outlook(bench)) is not None and said.left_s is not None,
        timeout_s=30,
        description="its end is told",
    )
    said = outlook(bench)
    assert said is not None
    assert (said.deadline, said.margin_s, said.is_urgent) == (None, None, False)
    assert 0 < said.left <= ROWS
    stop(running)
    assert lists_of(slow) == {"6"}


def test_a_near_deadline_lets_hints_go_first_and_names_the_workers(bench: Bench, slow: FakeEngineWorker) -> None:
    due(bench, 8)
    running = Running(bench.collector())
    wait_until(
        lambda: (said := outlook(bench)) is not None and said.workers_needed, timeout_s=30, description="a miss is told"
    )
    wait_until(lambda: "3" in lists_of(slow), timeout_s=30, description="hints of high priority")
    said = outlook(bench)
    assert said is not None
    assert said.is_urgent
    assert said.margin_s is not None
    assert said.margin_s < 0
    stop(running)


def test_another_command_moves_the_deadline_of_a_running_job(bench: Bench, slow: FakeEngineWorker) -> None:
    due(bench, 8)
    running = Running(bench.collector())
    wait_until(
        lambda: (said := outlook(bench)) is not None and said.is_urgent, timeout_s=30, description="it is in a hurry"
    )
    due(bench, 3600)
    wait_until(
        lambda: (said := outlook(bench)) is not None and not said.is_urgent and (said.margin_s or 0) > 3000,
        timeout_s=30,
        description="there is time again",
    )
    stop(running)


def test_workers_that_all_go_are_a_miss_and_how_many_are_needed_is_still_known(bench: Bench) -> None:
    due(bench, 40)
    running = Running(bench.collector())
    with FakeEngineWorker(bench.server, publish=take_time, target=16):
        wait_until(
            lambda: (said := outlook(bench)) is not None and said.margin_s, timeout_s=30, description="its end is told"
        )
    wait_until(
        lambda: (said := outlook(bench)) is not None and said.left_s is None and said.is_at_risk,
        timeout_s=40,
        description="a miss is told though no end is",
    )
    said = outlook(bench)
    assert said is not None
    assert (said.bottleneck, said.margin_s) == ("workers", None)
    assert said.workers_needed
    stop(running)


def test_what_comes_late_is_counted_and_kept(bench: Bench, valkey: redis.Redis) -> None:
    due(bench, -5)
    with FakeEngineWorker(bench.server):
        outcome = bench.run()
    assert outcome.exit_code == 0
    bench.check_whole(ROWS)
    assert outcome.counts.late == ROWS
    checkpoint = read_checkpoint(bench.directory.journal_path)
    assert checkpoint is not None
    assert checkpoint.counts.late == ROWS
    assert read_remote(valkey, bench.job)[bench.job]["late"] == str(ROWS)


def test_any_host_sees_what_the_collector_expects(bench: Bench, slow: FakeEngineWorker, tmp_path: Path) -> None:
    due(bench, 3600)
    running = Running(bench.collector())
    wait_until(
        lambda: (said := outlook(bench)) is not None and said.margin_s, timeout_s=30, description="its end is told"
    )
    elsewhere = bench.settings.model_copy(update={"jobs": tmp_path / "nothing"})
    (there,) = read_status(elsewhere, job=bench.job).jobs
    at_home = bench.settings.model_copy(update={"jobs": bench.jobs})
    (here,) = read_status(at_home, job=bench.job).jobs
    assert there.outlook is not None
    assert there.outlook.margin_s == pytest.approx(3600, abs=60)
    assert there.deadline == here.deadline
    assert there.completion_tokens > 0
    stop(running)
    (left,) = read_status(at_home, job=bench.job).jobs
    assert left.outlook is None, "nobody works on it"
