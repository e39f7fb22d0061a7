"""The Redis of a fleet as metrics: what stands in it, who is on it, and which jobs nobody collects."""

import pytest
import redis

from common import keys
from common.broker import transport_options
from common.settings import Settings
from producer import redis_metrics
from producer.fleet import JOB_LIVE_S, JobsSeen, LiveJobs
from producer.redis_metrics import RedisMetrics
from tests.servers import Server

LIMIT_BYTES = 512 << 20


def shown(metrics: RedisMetrics) -> dict[str, float]:
    """Every series by its name and label, `bakehouse_` left out."""
    samples = [sample for family in metrics.collect() for sample in family.samples]
    return {
        "/".join([sample.name.removeprefix("bakehouse_"), *sample.labels.values()]): sample.value for sample in samples
    }


def test_nothing_is_shown_before_a_server_is_named() -> None:
    assert shown(RedisMetrics()) == {}


def test_hints_streams_workers_and_jobs_are_counted(own_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_metrics, "EVERY_S", 0.0)
    settings, client = Settings(redis_url=own_server.url), own_server.client()
    metrics = RedisMetrics()
    metrics.watch(settings)
    empty = shown(metrics)
    assert empty.pop("redis_memory_used_bytes") > 1 << 20
    assert empty.pop("redis_up") == 1
    assert set(empty.values()) == {0}
    assert "redis_memory_limit_bytes" not in empty, "it has none"

    separator = transport_options(settings)["sep"]
    for queue, hints in (("", 2), ("3", 1), ("6", 5), ("7", 4), ("9", 3)):
        for model in ("one", "two@digest"):
            client.rpush(f"{keys.queue(model)}{separator if queue else ''}{queue}", *range(hints))
    for job, entries in (("first", 2), ("second", 1)):
        client.hset(keys.JOBS, job, "manifest")
        client.hset(keys.info(job), mapping={"seen": "1.1", "state": "open"})
        for _ in range(entries):
            client.xadd(keys.results(job), {"mb": "1"})
    client.hset(keys.worker("here-0-abc"), "state", "ready")
    client.config_set("maxmemory", LIMIT_BYTES)
    full = shown(metrics)
    assert {name: value for name, value in full.items() if not name.startswith("redis_memory_used")} == {
        "redis_up": 1,
        "redis_memory_limit_bytes": LIMIT_BYTES,
        "queue_hints/redelivery": 4,
        "queue_hints/high": 2,
        "queue_hints/left_high": 0,
        "queue_hints/normal": 10,
        "queue_hints/left_normal": 8,
        "queue_hints/low": 6,
        "stream_entries": 3,
        "live_workers": 1,
        "jobs/alive": 2,
        "jobs/gone": 0,
        "jobs/paused": 0,
    }


def test_scrapes_close_together_ask_once(valkey: redis.Redis, valkey_server: Server) -> None:
    metrics = RedisMetrics()
    metrics.watch(Settings(redis_url=valkey_server.url))
    assert shown(metrics)["live_workers"] == 0
    valkey.hset(keys.worker("here-0-abc"), "state", "ready")
    valkey.expire(keys.worker("here-0-abc"), 60)
    assert shown(metrics)["live_workers"] == 0


def test_a_server_that_is_gone_is_all_that_is_shown(own_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_metrics, "EVERY_S", 0.0)
    metrics = RedisMetrics()
    metrics.watch(Settings(redis_url=own_server.url))
    assert shown(metrics)["redis_up"] == 1
    own_server.kill()
    assert shown(metrics) == {"redis_up": 0}
    own_server.start()
    assert shown(metrics)["redis_up"] == 1


def test_a_job_whose_collector_stands_still_is_gone_and_a_paused_one_is_not(valkey: redis.Redis) -> None:
    for job, state in (("kept", "open"), ("lost", "open"), ("resting", "paused")):
        valkey.hset(keys.JOBS, job, "manifest")
        valkey.hset(keys.info(job), mapping={"seen": "1.1", "state": state})
        valkey.expire(keys.info(job), 60)
    jobs = LiveJobs()
    assert jobs.look(valkey, now_s=0.0) == JobsSeen(alive=2, gone=0, paused=1)
    valkey.hset(keys.info("kept"), "seen", "1.2")
    assert jobs.look(valkey, now_s=JOB_LIVE_S) == JobsSeen(alive=2, gone=0, paused=1)
    valkey.hset(keys.info("kept"), "seen", "1.3")
    assert jobs.look(valkey, now_s=JOB_LIVE_S + 1) == JobsSeen(alive=1, gone=1, paused=1)
    assert LiveJobs("lost").look(valkey, now_s=0.0) == JobsSeen(alive=1, gone=0, paused=1)
