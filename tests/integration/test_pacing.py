"""How many hints a collector has in the queue, on a real server: what the fleet runs at once, and never none."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import redis

from common import keys
from common.errors import InterruptedJobError
from common.wire import MicroBatch
from producer.endurance import TURN_S
from tests.collecting import SEPARATOR, Bench, FakeEngineWorker, Running, quick_settings, write_input
from tests.servers import Server
from tests.waiting import wait_until

NORMAL, LEFT = 6, 7
TARGET = 16
SIZE = 8
"""Two micro-batches are what the worker runs at once."""
FULL = 12
"""Of 200 rows the first dozen micro-batches are full; towards the end they shrink, and more are hinted."""


@pytest.fixture
def bench(tmp_path: Path, valkey: redis.Redis, valkey_server: Server) -> Bench:
    """A job of 200 rows, all of which the window holds."""
    settings = quick_settings(valkey_server, batch_size=SIZE, look_s=1.0, expire_s=3.0)
    return Bench(tmp_path, valkey_server, write_input(tmp_path / "in.jsonl", 200), settings=settings)


@pytest.fixture
def idle(valkey: redis.Redis, valkey_server: Server) -> Iterator[FakeEngineWorker]:
    """A live worker that takes nothing."""
    worker = FakeEngineWorker(valkey_server, target=TARGET)
    worker.show()
    yield worker
    valkey.delete(keys.worker(worker.incarnation))


def hints(client: redis.Redis, priority: int) -> int:
    """Hints that wait at `priority`, in the queues of model m."""
    queues = (keys.queue("m"), keys.queue("m", "d1"))
    return sum(client.llen(f"{queue}{SEPARATOR}{priority}") for queue in queues)


def offered(client: redis.Redis, job: str) -> int:
    """Micro-batches of `job` in Redis."""
    return client.scard(keys.open_set(job))


def test_what_the_fleet_runs_at_once_is_hinted_and_the_rest_waits(
    bench: Bench, idle: FakeEngineWorker, valkey: redis.Redis
) -> None:
    running = Running(bench.collector())
    wait_until(lambda: offered(valkey, bench.job) >= 25, timeout_s=10, description="all is offered")
    wait_until(lambda: hints(valkey, NORMAL) == TARGET // SIZE, timeout_s=10, description="two are hinted")
    most = 0

    def watch(worker: FakeEngineWorker, job: str, batch: MicroBatch, token: str, got: int) -> None:
        nonlocal most
        if batch.mb <= FULL:
            most = max(most, hints(worker.client, NORMAL))
        time.sleep(2 * TURN_S)  # no fleet that takes everything between two turns: for one the bound grows
        worker.publish_all(job, batch, token, got)

    with FakeEngineWorker(bench.server, publish=watch, target=TARGET) as worker:
        running.join()
    assert not worker.errors
    bench.check_whole(200)
    assert most <= 2 * TARGET // SIZE, "two workers are live"
    assert len(worker.hints) == len({mb for _, mb, _ in worker.hints}), "each micro-batch was hinted once"


def test_a_claim_is_known_before_the_next_look(tmp_path: Path, valkey: redis.Redis, valkey_server: Server) -> None:
    settings = quick_settings(valkey_server, batch_size=SIZE, look_s=60.0, expire_s=180.0)
    bench = Bench(tmp_path, valkey_server, write_input(tmp_path / "in.jsonl", 200), settings=settings)
    with FakeEngineWorker(valkey_server, publish=lambda *_: None, target=TARGET) as worker:
        running = Running(bench.collector())
        wait_until(
            lambda: len(worker.claimed) == 25,
            timeout_s=30,
            description="all are claimed, none is published",
        )
        running.collector.stop()
        with pytest.raises(InterruptedJobError):
            running.join()


def test_no_live_worker_is_needed_for_a_first_hint(bench: Bench, valkey: redis.Redis) -> None:
    running = Running(bench.collector())
    wait_until(lambda: hints(valkey, NORMAL) == 1, timeout_s=10, description="one waits for whoever comes")
    with FakeEngineWorker(bench.server, target=TARGET):
        running.join()
    bench.check_whole(200)


def test_a_collector_that_ends_leaves_all_of_it_hinted_behind_the_others(
    bench: Bench, idle: FakeEngineWorker, valkey: redis.Redis
) -> None:
    bench.run(until="fed")
    assert (hints(valkey, NORMAL), hints(valkey, LEFT)) == (2, offered(valkey, bench.job) - 2)
    again = hints(valkey, LEFT)
    bench.run(until="fed")
    assert hints(valkey, NORMAL) == 2 * 2, "a new collector cannot know which were hinted"
    with FakeEngineWorker(bench.server, target=TARGET) as worker:
        wait_until(lambda: hints(valkey, LEFT) == 0, timeout_s=10, description="workers take them, nobody collects")
        bench.run()
    assert len(worker.claimed) == again + 2
    bench.check_whole(200)


def test_what_is_left_behind_does_not_grow_without_end(
    bench: Bench, idle: FakeEngineWorker, valkey: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("producer.hints.MOST_LEFT", 30)
    for _ in range(3):
        bench.run(until="fed")
    assert hints(valkey, LEFT) == 30


def test_hints_that_are_lost_take_nobody_s_place_for_long(
    bench: Bench, idle: FakeEngineWorker, valkey: redis.Redis
) -> None:
    """All that were sent are lost: the next look finds the queue empty and repeats them."""
    running = Running(bench.collector())
    wait_until(lambda: hints(valkey, NORMAL) == TARGET // SIZE, timeout_s=10, description="two are hinted")
    for queue in (keys.queue("m"), keys.queue("m", "d1")):
        valkey.delete(f"{queue}{SEPARATOR}{NORMAL}")
    with FakeEngineWorker(bench.server, target=TARGET):
        running.join()
    bench.check_whole(200)


def test_hints_that_are_lost_while_others_keep_the_queue_full_are_repeated_one_by_one(
    bench: Bench, idle: FakeEngineWorker, valkey: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("producer.hint_bound.FIRST_NUDGE_S", 0.5)
    key = f"{keys.queue('m', 'd1')}{SEPARATOR}{NORMAL}"
    running = Running(bench.collector())
    wait_until(lambda: hints(valkey, NORMAL) == TARGET // SIZE, timeout_s=10, description="two are hinted")
    stranger = valkey.rpop(key)
    valkey.delete(key)
    valkey.rpush(f"{keys.queue('m')}{SEPARATOR}9", cast(Any, stranger))
    wait_until(lambda: hints(valkey, NORMAL) >= 1, timeout_s=10, description="the oldest is hinted again")
    with FakeEngineWorker(bench.server, target=TARGET):
        running.join()
    bench.check_whole(200)


def test_a_full_redis_is_emptied_by_hints_for_what_it_has(
    bench: Bench, idle: FakeEngineWorker, valkey: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = Running(bench.collector())
    wait_until(lambda: offered(valkey, bench.job) >= 25, timeout_s=10, description="all is offered")
    monkeypatch.setattr("producer.surroundings.FULL_SHARE", 1e-9)
    valkey.config_set("maxmemory", "10gb")
    try:
        wait_until(lambda: running.collector._job.full, timeout_s=10, description="it sees that Redis is full")
        with FakeEngineWorker(bench.server, target=TARGET):
            running.join()
    finally:
        valkey.config_set("maxmemory", 0)
    bench.check_whole(200)
