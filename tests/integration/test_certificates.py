"""What a supervisor asks of a real Redis, and what it writes there, when a worker has died."""

import redis

from common import keys
from common.claim_types import Offer
from common.claims import Claims
from worker.certificates import Cause, certify, holds_any

JOB = "job-1"
TOKEN = "0" * 32


def test_a_worker_holds_work_from_its_claim_to_its_release(any_redis: redis.Redis) -> None:
    claims = Claims(any_redis)
    claims.own(JOB, epoch=1, state="open", mb_high=0, digests={}, manifest="{}")
    claims.offer(JOB, [Offer(mb=1, n=1, got=0, z=b"z", dlv=0, kind="normal")], epoch=1)
    any_redis.hset(keys.JOBS, JOB, "{}")
    assert not holds_any(any_redis, "host-0-aaaaaaaa")
    claims.claim(JOB, 1, token=TOKEN, worker="host-0-aaaaaaaa", model="m", digest="d")
    assert holds_any(any_redis, "host-0-aaaaaaaa")
    assert not holds_any(any_redis, "host-0-bbbbbbbb")
    claims.release(JOB, 1, token=TOKEN)
    assert not holds_any(any_redis, "host-0-aaaaaaaa")


def test_a_job_that_redis_forgot_holds_nothing(any_redis: redis.Redis) -> None:
    any_redis.hset(keys.JOBS, JOB, "{}")
    assert not holds_any(any_redis, "host-0-aaaaaaaa")


def test_a_certificate_has_a_lifetime_and_ends_the_heartbeat(any_redis: redis.Redis) -> None:
    any_redis.hset(keys.worker("host-0-aaaaaaaa"), "state", "ready")
    certify(any_redis, "host-0-aaaaaaaa", Cause.OUTSIDE)
    certify(any_redis, "host-0-aaaaaaaa", Cause.OUTSIDE)
    assert any_redis.hgetall(keys.DIED) == {b"host-0-aaaaaaaa": b"outside"}
    assert 0 < any_redis.ttl(keys.DIED) <= keys.DIED_LIFETIME_S
    assert not any_redis.exists(keys.worker("host-0-aaaaaaaa"))
