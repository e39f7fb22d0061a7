"""How much a collector has outstanding, how it reads its input, and what it does while Redis is full or gone."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import redis

from common import keys
from common.errors import InterruptedJobError, RefusedError, StoppedError
from common.wire import MicroBatch
from producer.journal_reader import JournalReader
from producer.steering import Wish
from producer.wish_file import leave_wish
from tests.collecting import Bench, FakeEngineWorker, Running, quick_settings, write_input
from tests.servers import VALKEY, Server
from tests.waiting import wait_until


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Server]:
    """A server of this test alone."""
    server = Server(VALKEY, tmp_path / "server").start()
    yield server
    server.stop()


def outstanding(client: redis.Redis, job: str) -> int:
    """Requests in open micro-batches that have no result: one whose first results are there makes room already."""
    numbers = client.smembers(keys.open_set(job))
    found = [cast(list[bytes | None], client.hmget(keys.micro_batch(job, int(mb)), "n", "got")) for mb in numbers]
    return sum(int(n) - int.from_bytes(got or b"", "little").bit_count() for n, got in found if n)


def test_the_window_bounds_what_is_fed(tmp_path: Path, valkey: redis.Redis, valkey_server: Server) -> None:
    settings = quick_settings(valkey_server, window_requests=50)
    bench = Bench(tmp_path, valkey_server, write_input(tmp_path / "in.jsonl", 300), settings=settings)
    outcome = bench.run(until="fed")
    assert (outcome.counts.total, outcome.counts.fed) == (None, 48)
    assert outstanding(valkey, bench.job) == 48
    most = 0

    def watch(worker: FakeEngineWorker, job: str, batch: MicroBatch, token: str, got: int) -> None:
        nonlocal most
        most = max(most, outstanding(worker.client, job))
        worker.publish_all(job, batch, token, got)

    with FakeEngineWorker(valkey_server, publish=watch, target=4):
        bench.run()
    bench.check_whole(300)
    assert 40 <= most <= 50


def test_max_concurrency_is_never_exceeded(tmp_path: Path, valkey: redis.Redis, valkey_server: Server) -> None:
    settings = quick_settings(valkey_server, max_concurrency=5)
    bench = Bench(tmp_path, valkey_server, write_input(tmp_path / "in.jsonl", 40), settings=settings)
    assert bench.run(until="fed").counts.fed == 5

    def watch(worker: FakeEngineWorker, job: str, batch: MicroBatch, token: str, got: int) -> None:
        assert outstanding(worker.client, job) <= 5
        worker.publish_all(job, batch, token, got)

    with FakeEngineWorker(valkey_server, publish=watch) as worker:
        bench.run()
    assert not worker.errors
    bench.check_whole(40)


def test_the_byte_window_bounds_redis(tmp_path: Path, own_server: Server) -> None:
    text = json.dumps([secret * 17 for secret in range(12_000)])
    settings = quick_settings(own_server, window_bytes=1024 * 1024, max_line_bytes=1024 * 1024)
    source = write_input(tmp_path / "in.jsonl", 100, text=text)
    bench = Bench(tmp_path, own_server, source, settings=settings)
    outcome = bench.run(until="fed")
    client = own_server.client()
    assert 8 < outcome.counts.fed < 100
    sizes = [client.hstrlen(keys.micro_batch(bench.job, mb), "z") for mb in range(1, 100)]
    assert sum(sizes) < 1.2 * 1024 * 1024
    with FakeEngineWorker(own_server):
        bench.run()
    bench.check_whole(100)


def test_live_jobs_share_the_window(tmp_path: Path, valkey: redis.Redis, valkey_server: Server) -> None:
    settings = quick_settings(valkey_server, window_requests=80)
    source = write_input(tmp_path / "in.jsonl", 100)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first = Bench(tmp_path / "a", valkey_server, source, settings=settings)
    second = Bench(tmp_path / "b", valkey_server, source, settings=settings)
    assert first.run(until="fed").counts.fed == 80
    assert second.run(until="fed").counts.fed == 40


def test_a_paused_job_leaves_its_share_to_others(tmp_path: Path, valkey: redis.Redis, valkey_server: Server) -> None:
    settings = quick_settings(valkey_server, window_requests=80)
    source = write_input(tmp_path / "in.jsonl", 100)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    paused = Bench(tmp_path / "a", valkey_server, source, settings=settings)
    leave_wish(paused.directory.want_path, Wish.make("pause"))
    assert paused.run().status == "paused"
    other = Bench(tmp_path / "b", valkey_server, source, settings=settings)
    assert other.run(until="fed").counts.fed == 80


@pytest.mark.parametrize(
    ("content", "total", "blank", "status", "exit_code"),
    [
        pytest.param(b"", 0, 0, "completed", 0, id="empty"),
        pytest.param(b"\n \r\n\t\n", 0, 3, "completed", 0, id="blank"),
        pytest.param(b"nonsense\n\n[1]\n{}", 3, 1, "failed", 1, id="nothing good"),
    ],
)
def test_an_input_without_a_good_line_needs_no_worker(
    tmp_path: Path,
    valkey: redis.Redis,
    valkey_server: Server,
    content: bytes,
    total: int,
    blank: int,
    status: str,
    exit_code: int,
) -> None:
    (tmp_path / "in.jsonl").write_bytes(content)
    bench = Bench(tmp_path, valkey_server, tmp_path / "in.jsonl")
    outcome = bench.run(until="fed")
    assert (outcome.state, outcome.status, outcome.exit_code) == ("done", status, exit_code)
    assert (outcome.counts.total, outcome.counts.blank, outcome.counts.failed) == (total, blank, total)
    assert len(bench.results()) == total


def test_the_first_use_of_an_id_runs_also_over_a_restart(
    tmp_path: Path, valkey: redis.Redis, valkey_server: Server
) -> None:
    source = write_input(tmp_path / "in.jsonl", 30)
    again = source.read_text().splitlines(keepends=True)[3]
    source.write_text(source.read_text() + again + again)
    settings = quick_settings(valkey_server, window_requests=10)
    bench = Bench(tmp_path, valkey_server, source, settings=settings)
    assert bench.run(until="fed").counts.fed == 8
    with FakeEngineWorker(valkey_server):
        outcome = bench.run()
    assert [r["custom_id"] for r in bench.results()] == [f"r{i}" for i in range(30)] + ["r3", "r3"]
    assert outcome.counts.failures == {"duplicate_custom_id": 2}


def test_lines_that_wait_for_a_micro_batch_survive_a_restart(
    tmp_path: Path, valkey: redis.Redis, valkey_server: Server
) -> None:
    """Two models and a small window: some lines are read and in no micro-batch yet when the collector ends."""
    with (tmp_path / "in.jsonl").open("w") as file:
        for i in range(60):
            body: dict[str, Any] = {"model": "mn"[i % 5 == 0], "messages": [{"role": "user", "content": "hi"}]}
            file.write(json.dumps({"custom_id": f"r{i}", **body}) + "\n\n")
    settings = quick_settings(valkey_server, window_requests=20)
    bench = Bench(tmp_path, valkey_server, tmp_path / "in.jsonl", model=None, settings=settings)
    with (
        FakeEngineWorker(valkey_server, publish=lambda *_: None, target=2),
        FakeEngineWorker(valkey_server, models=["n"], publish=lambda *_: None, target=2),
    ):
        fed = bench.run(until="fed").counts.fed
    assert 0 < fed < 60
    with FakeEngineWorker(valkey_server), FakeEngineWorker(valkey_server, models=["n"]):
        outcome = Running(bench.collector()).join(timeout_s=20)
    bench.check_whole(60)
    assert [r["line"] for r in bench.results()] == [2 * i + 1 for i in range(60)]
    assert outcome.counts.blank == 60


def test_redis_killed_and_started_again(tmp_path: Path, own_server: Server) -> None:
    bench = Bench(tmp_path, own_server, write_input(tmp_path / "in.jsonl", 100))

    def kill_once(worker: FakeEngineWorker, job: str, batch: MicroBatch, token: str, got: int) -> None:
        if len(worker.claimed) == 4:
            own_server.kill()
            own_server.start()
        worker.publish_all(job, batch, token, got)

    with FakeEngineWorker(own_server, publish=kill_once) as worker:
        Running(bench.collector()).join(timeout_s=40)
    assert not worker.errors
    bench.check_whole(100)
    assert any(reason and "Redis does not answer" in reason for reason in bench.reasons)


def test_a_redis_that_stays_away_is_given_up(tmp_path: Path, own_server: Server) -> None:
    settings = quick_settings(own_server, give_up_after_s=1.0)
    bench = Bench(tmp_path, own_server, write_input(tmp_path / "in.jsonl", 20), settings=settings)
    bench.run(until="fed")
    own_server.kill()
    with pytest.raises(StoppedError, match="Redis does not answer") as stopped:
        Running(bench.collector()).join(timeout_s=10)
    assert stopped.value.exit_code == 3
    own_server.start()
    with FakeEngineWorker(own_server):
        bench.run()
    bench.check_whole(20)


def used_bytes(client: redis.Redis) -> int:
    """Memory in use."""
    return int(cast(Any, client.info("memory"))["used_memory"])


def test_nothing_is_offered_to_a_full_redis(tmp_path: Path, own_server: Server) -> None:
    client = own_server.client()
    bench = Bench(tmp_path, own_server, write_input(tmp_path / "in.jsonl", 50))
    client.set("filler", b"x" * 50_000_000, ex=600)
    wait_until(lambda: used_bytes(client) < 60_000_000, timeout_s=10, description="its query buffer is freed")
    client.config_set("maxmemory", int(used_bytes(client) / 0.9))
    running = Running(bench.collector())
    with FakeEngineWorker(own_server):
        wait_until(
            lambda: any(reason and "maxmemory" in reason for reason in bench.reasons),
            timeout_s=10,
            description="it says that Redis is full",
        )
        assert client.scard(keys.open_set(bench.job)) == 0
        client.config_set("maxmemory", 0)
        running.join()
    bench.check_whole(50)


def test_a_redis_that_refuses_offers_loses_nothing(
    tmp_path: Path, own_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Full at the very moment of an offer: what the journal has and Redis refused is offered by a later look."""
    client = own_server.client()
    settings = quick_settings(own_server)
    bench = Bench(tmp_path, own_server, write_input(tmp_path / "in.jsonl", 50), settings=settings)
    monkeypatch.setattr("producer.surroundings.FULL_SHARE", 1e9)
    client.config_set("maxmemory", 1)
    running = Running(bench.collector())
    wait_until(lambda: fed(bench.directory.journal_path) == 50, timeout_s=10, description="journaled")
    client.config_set("maxmemory", 0)
    with FakeEngineWorker(own_server):
        running.join(timeout_s=30)
    bench.check_whole(50)


def fed(journal: Path) -> int:
    """Requests in the journal, 0 before it has its tables."""
    try:
        with JournalReader.open(journal) as reader:
            return reader.checkpoint().counts.fed
    except RefusedError:
        return 0


def test_stop_ends_within_two_seconds(tmp_path: Path, valkey: redis.Redis, valkey_server: Server) -> None:
    bench = Bench(tmp_path, valkey_server, write_input(tmp_path / "in.jsonl", 20))
    running = Running(bench.collector())
    wait_until(lambda: bench.reasons, timeout_s=10, description="it works")
    running.collector.stop()
    with pytest.raises(InterruptedJobError) as interrupted:
        running.join(timeout_s=2)
    assert interrupted.value.exit_code == 130
