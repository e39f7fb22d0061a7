"""A job seen from another host: what its collector wrote in a real Redis, over made-up times."""

from typing import Any, cast

import redis

from common import keys
from producer.counts import Counts
from producer.fleet import JOB_LIVE_S
from producer.notice import counts_of, fields_of
from producer.sight import RedisEye

JOB = "j"
MANIFEST = '{"host": "gpu-7", "directory": "/data/jobs/j", "output": "/data/out.jsonl"}'


def write(client: redis.Redis, **fields: str) -> None:
    client.hset(keys.info(JOB), mapping=cast(Any, {"state": "open", "manifest": MANIFEST, **fields}))
    client.expire(keys.info(JOB), 60)


def test_counts_come_back_from_redis_as_they_went() -> None:
    counts = Counts(total=9, fed=9, done=8, succeeded=6, failed=2, failures={"timeout": 2}, completion_tokens=7)
    fields = {name: str(value) for name, value in fields_of(counts).items()}
    assert counts_of(fields) == counts
    assert counts_of({"total": "", "done": "3"}) == Counts(done=3)


def test_a_collector_lives_while_its_sign_of_life_moves(valkey: redis.Redis) -> None:
    eye = RedisEye(valkey, JOB)
    write(valkey, seen="1.1")
    assert eye.look(now_s=0).lacks is None
    assert eye.look(now_s=JOB_LIVE_S - 1).lacks is None
    write(valkey, seen="1.2")
    assert eye.look(now_s=JOB_LIVE_S + 1).lacks is None
    assert eye.look(now_s=2 * JOB_LIVE_S).lacks is None
    assert eye.look(now_s=2 * JOB_LIVE_S + 1).lacks == (
        "no collector is alive: on host gpu-7, producer resume j --jobs /data/jobs"
    )
    write(valkey, seen="2.1")
    assert eye.look(now_s=2 * JOB_LIVE_S + 2).lacks is None


def test_how_a_job_ends(valkey: redis.Redis) -> None:
    eye = RedisEye(valkey, JOB)
    assert eye.look(now_s=0).status is None
    write(valkey)
    assert not eye.look(now_s=0).is_over
    write(valkey, state="done")
    assert not eye.look(now_s=0).is_over, "not before its exit code is there"
    write(valkey, state="done", status="cancelled", exit="1", **{"done": "5", "failures": '{"cancelled":2}'})
    sight = eye.look(now_s=0)
    assert sight.is_over
    assert sight.status is not None
    assert (sight.status.state, sight.status.exit_code, sight.counts.failures) == ("cancelled", 1, {"cancelled": 2})
