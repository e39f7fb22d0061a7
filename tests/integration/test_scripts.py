"""Each script a worker calls and each of its answers, on each server; where one promises so, nothing is written."""

import pytest
import redis

from common.claim_types import Claimed, Renewal, Seen
from common.claims import Claims
from tests.integration.claiming import ALL, JOB, ONE, TWO, an_offer, claim, opened, publish, seen, unchanged


@pytest.fixture
def claims(any_redis: redis.Redis) -> Claims:
    """One open job under epoch 5, with micro-batch 1 READY."""
    return opened(any_redis)


def test_claim_gives_the_payload_and_pins_the_digest(claims: Claims) -> None:
    claims.offer(JOB, [an_offer(2, got=0b11)], epoch=5)
    assert claim(claims, 2) == Claimed("GO", b"payload \x00\xff", 0b11, 1)
    assert claims.look(JOB).digests == {"m": "d"}
    assert seen(claims, 2) == Seen("HELD", ONE, 1, 0b11, False, "w-0")


def test_claim_repeated_gives_the_same(claims: Claims, any_redis: redis.Redis) -> None:
    first = claim(claims)
    with unchanged(any_redis):
        assert claim(claims) == first


def test_claim_of_what_another_holds_is_busy(claims: Claims, any_redis: redis.Redis) -> None:
    claim(claims)
    with unchanged(any_redis):
        assert claim(claims, token=TWO) == Claimed("BUSY", None, 0, 0)


def test_claim_of_what_is_full_is_busy(claims: Claims, any_redis: redis.Redis) -> None:
    claim(claims)
    publish(claims, ALL)
    with unchanged(any_redis):
        assert claim(claims).answer == "BUSY"


def test_claim_of_what_is_closed_is_gone(claims: Claims, any_redis: redis.Redis) -> None:
    with unchanged(any_redis):
        assert claim(claims, 77).answer == "GONE"


@pytest.mark.parametrize("state", ["rebuilding", "paused", "cancelling", "sealed", "done"])
def test_claim_hears_a_state_that_is_not_open(claims: Claims, any_redis: redis.Redis, state: str) -> None:
    claims.state(JOB, epoch=5, state=state)
    with unchanged(any_redis):
        assert claim(claims).answer == state


def test_claim_of_an_unknown_job(any_redis: redis.Redis) -> None:
    assert claim(Claims(any_redis)).answer == "NOJOB"
    assert any_redis.dbsize() == 0


def test_claim_by_another_build_of_the_model(claims: Claims, any_redis: redis.Redis) -> None:
    claims.offer(JOB, [an_offer(2)], epoch=5)
    claim(claims)
    with unchanged(any_redis):
        assert claim(claims, 2, token=TWO, digest="e").answer == "OTHER_MODEL"
    assert claims.claim(JOB, 2, token=TWO, worker="w-1", model="n", digest="e").answer == "GO"


def test_claim_by_any_build_where_the_job_lets_them_mix(any_redis: redis.Redis) -> None:
    claims = Claims(any_redis)
    claims.own(JOB, epoch=5, state="open", mb_high=0, digests={}, manifest="{}", mixed=True)
    claims.offer(JOB, [an_offer(1), an_offer(2)], epoch=5)
    assert (claim(claims).answer, claim(claims, 2, token=TWO, digest="e").answer) == ("GO", "GO")
    assert claims.look(JOB).digests == {"m": ""}


def test_claim_after_a_loss_counts_the_delivery(claims: Claims) -> None:
    claim(claims)
    claims.arm(JOB, 1, token=ONE)
    publish(claims, 0b1)
    assert claims.expire(JOB, 1, epoch=5, token=ONE, beat=2) == "OK"
    assert claim(claims, token=TWO)[2:] == (0b1, 2)
    assert seen(claims) == Seen("HELD", TWO, 3, 0b1, False, "w-0")


def test_renew_moves_the_beat_and_tells_what_is_got(claims: Claims) -> None:
    claim(claims)
    claims.mark(JOB, 1, epoch=5, mask=0b100)
    assert claims.renew(JOB, [(1, ONE)]) == Renewal("open", [0b100])
    assert seen(claims).beat == 2


def test_renew_tells_why_a_hold_is_lost(claims: Claims, any_redis: redis.Redis) -> None:
    claims.offer(JOB, [an_offer(2), an_offer(3)], epoch=5)
    claim(claims)
    claim(claims, 3)
    publish(claims, ALL, mb=3)
    claims.state(JOB, epoch=5, state="paused")
    with unchanged(any_redis):
        assert claims.renew(JOB, [(9, ONE), (3, ONE), (2, ONE), (1, TWO)]) == Renewal(
            "paused", ["GONE", "FULL", "READY", "HELD"]
        )


def test_renew_of_an_unknown_job(any_redis: redis.Redis) -> None:
    assert Claims(any_redis).renew(JOB, [(1, ONE)]) == Renewal("NOJOB", ["GONE"])
    assert any_redis.dbsize() == 0


def test_arm(claims: Claims, any_redis: redis.Redis) -> None:
    claim(claims)
    assert claims.arm(JOB, 1, token=ONE)
    assert seen(claims) == Seen("HELD", ONE, 2, 0, True, "w-0")
    with unchanged(any_redis):
        assert not claims.arm(JOB, 1, token=TWO)
        assert not claims.arm(JOB, 9, token=ONE)
        assert claims.expire(JOB, 1, epoch=5, token=ONE, beat=1) == "MOVED"


def test_publish_until_full(claims: Claims, any_redis: redis.Redis) -> None:
    claim(claims)
    assert publish(claims, 0b1) == "OK"
    assert publish(claims, ALL & ~0b1) == "FULL"
    assert seen(claims) == Seen("FULL", ONE, 1, ALL, False, "w-0")
    first, second = claims.entries(JOB)
    assert (first.mb, first.blob) == (1, b"blob \x00\xff")
    assert claims.look(JOB).stream_length == 2
    assert claims.look(JOB).last_id == second.id
    with unchanged(any_redis):
        assert publish(claims, 0b1) == "FULL"


def test_publish_of_what_is_there_is_a_duplicate(claims: Claims, any_redis: redis.Redis) -> None:
    claim(claims)
    publish(claims, 0b11)
    with unchanged(any_redis):
        assert publish(claims, 0b10) == "DUP"
    assert publish(claims, 0b110) == "OK"


def test_publish_counts_no_bit_beyond_the_requests(claims: Claims) -> None:
    claim(claims)
    assert publish(claims, 1 << 9 | 1 << 40) == "DUP"
    assert publish(claims, ALL | 1 << 9) == "FULL"
    assert seen(claims).got == ALL


def test_publish_of_what_the_journal_has_whole(claims: Claims, any_redis: redis.Redis) -> None:
    claim(claims)
    claims.mark(JOB, 1, epoch=5, mask=ALL)
    assert publish(claims, 0b1) == "FULL"
    assert claims.entries(JOB) == []
    assert seen(claims).st == "FULL"


def test_publish_refused(claims: Claims, any_redis: redis.Redis) -> None:
    with unchanged(any_redis):
        assert publish(claims, 0b1, mb=9) == "REFUSED"
        assert publish(claims, 0b1) == "REFUSED"
    claim(claims)
    with unchanged(any_redis):
        assert publish(claims, 0b1, token=TWO) == "REFUSED"


@pytest.mark.parametrize(
    ("state", "answer"),
    [("sealed", "REFUSED"), ("done", "REFUSED"), ("paused", "OK"), ("cancelling", "OK"), ("rebuilding", "OK")],
)
def test_publish_obeys_the_state(claims: Claims, state: str, answer: str) -> None:
    claim(claims)
    claims.state(JOB, epoch=5, state=state)
    assert publish(claims, 0b1) == answer
    assert len(claims.entries(JOB)) == (answer == "OK")


def test_release_hands_back_with_what_is_published(claims: Claims, any_redis: redis.Redis) -> None:
    claim(claims)
    claims.arm(JOB, 1, token=ONE)
    publish(claims, 0b1)
    with unchanged(any_redis):
        assert not claims.release(JOB, 1, token=TWO)
    assert claims.release(JOB, 1, token=ONE)
    assert seen(claims) == Seen("READY", None, 2, 0b1, False, None)
    with unchanged(any_redis):
        assert not claims.release(JOB, 1, token=ONE)
        assert publish(claims, 0b10) == "REFUSED"
    assert claim(claims, token=TWO).dlv == 1
