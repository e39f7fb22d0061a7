"""Each script a collector calls and each of its answers, on each server; where one promises so, nothing is written."""

import pytest
import redis

from common import keys
from common.claim_types import Entry, Look, Seen
from common.claims import Claims
from tests.integration.claiming import ALL, JOB, ONE, TWO, an_offer, claim, opened, own, publish, seen, unchanged


@pytest.fixture
def claims(any_redis: redis.Redis) -> Claims:
    """One open job under epoch 5, with micro-batch 1 READY."""
    return opened(any_redis)


def test_own_takes_a_job_that_redis_does_not_know(any_redis: redis.Redis) -> None:
    claims = Claims(any_redis)
    assert own(claims, epoch=3, state="rebuilding", mb_high=7, digests={"m": "d"}, manifest='{"v":1}')
    look = claims.look(JOB)
    assert look == Look(3, "rebuilding", None, {"m": "d"}, 0, "", {}, {"mb_high": "7", "manifest": '{"v":1}'})
    assert 0 < int(str(any_redis.ttl(keys.info(JOB)))) <= keys.JOB_LIFETIME_S


def test_own_under_the_same_epoch_changes_the_state(claims: Claims) -> None:
    assert own(claims, epoch=5, state="rebuilding", mb_high=1)
    assert claims.look(JOB).state == "rebuilding"


@pytest.mark.parametrize(("epoch", "mb_high"), [(4, 1), (4, 99), (6, 0)])
def test_own_refuses_an_old_journal(claims: Claims, any_redis: redis.Redis, epoch: int, mb_high: int) -> None:
    with unchanged(any_redis):
        assert not own(claims, epoch=epoch, mb_high=mb_high)


def test_own_compares_numbers_and_not_texts(any_redis: redis.Redis) -> None:
    claims = Claims(any_redis)
    assert own(claims, epoch=9, mb_high=9)
    assert own(claims, epoch=10, mb_high=10)
    assert not own(claims, epoch=9, mb_high=10)


def test_own_keeps_a_pin_that_the_journal_does_not_know_yet(claims: Claims) -> None:
    assert claim(claims).answer == "GO"
    assert own(claims, epoch=6, mb_high=1, digests={"other": "e"})
    assert claims.look(JOB).digests == {"m": "d", "other": "e"}


def test_own_needs_a_manifest(any_redis: redis.Redis) -> None:
    with pytest.raises(ValueError, match="manifest"):
        own(Claims(any_redis), epoch=1, manifest="")


def test_amend_sets_state_and_fields(claims: Claims) -> None:
    assert claims.amend(JOB, epoch=5, fields={"seen": 4, "done": 12})
    assert claims.state(JOB, epoch=5, state="paused")
    look = claims.look(JOB)
    assert (look.state, look.fields["seen"], look.fields["done"]) == ("paused", "4", "12")


@pytest.mark.parametrize("epoch", [4, 6])
def test_amend_under_another_epoch_writes_nothing(claims: Claims, any_redis: redis.Redis, epoch: int) -> None:
    with unchanged(any_redis):
        assert not claims.amend(JOB, epoch=epoch, state="open", fields={"seen": 1})


def test_amend_of_a_forgotten_job_writes_nothing(claims: Claims, any_redis: redis.Redis) -> None:
    any_redis.flushall(asynchronous=False)
    assert not claims.amend(JOB, epoch=5, fields={"seen": 1})
    assert any_redis.dbsize() == 0


def test_ask_leaves_a_wish(claims: Claims) -> None:
    assert claims.ask(JOB, "pause:1a") == "OK"
    assert claims.ask(JOB, "resume:2b") == "OK"
    assert claims.look(JOB).want == "resume:2b"


def test_ask_of_an_unknown_job_writes_nothing(any_redis: redis.Redis) -> None:
    assert Claims(any_redis).ask(JOB, "cancel:1a") == "NOJOB"
    assert any_redis.dbsize() == 0


def test_ask_of_a_done_job_writes_nothing(claims: Claims) -> None:
    claims.state(JOB, epoch=5, state="done")
    assert claims.ask(JOB, "pause:1a") == "DONE"
    assert claims.look(JOB).want is None


def test_a_cancel_that_nobody_has_heard_is_not_replaced(claims: Claims) -> None:
    assert claims.ask(JOB, "cancel:1a") == "OK"
    assert claims.ask(JOB, "resume:2b") == "CANCEL"
    assert claims.ask(JOB, "cancel:3c") == "OK"
    assert claims.look(JOB).want == "cancel:3c"
    claims.amend(JOB, epoch=5, fields={"heard": "3c"})
    assert claims.ask(JOB, "resume:2b") == "OK"


def test_offer_new_then_same(claims: Claims, any_redis: redis.Redis) -> None:
    assert claims.offer(JOB, [an_offer(12, got=0b101), an_offer(3)], epoch=5) == ["NEW", "NEW"]
    look = claims.look(JOB)
    assert look.micro_batches[12] == Seen("READY", None, 0, 0b101, False, None)
    assert look.fields["mb_high"] == "12"
    claim(claims, 12)
    with unchanged(any_redis):
        assert claims.offer(JOB, [an_offer(12)], epoch=5) == ["SAME"]


def test_offer_same_puts_a_lost_number_back(claims: Claims, any_redis: redis.Redis) -> None:
    any_redis.delete(keys.open_set(JOB))
    assert claims.offer(JOB, [an_offer(1)], epoch=5) == ["SAME"]
    assert set(claims.look(JOB).micro_batches) == {1}


@pytest.mark.parametrize("epoch", [4, 6])
def test_offer_is_fenced(claims: Claims, any_redis: redis.Redis, epoch: int) -> None:
    with unchanged(any_redis):
        assert claims.offer(JOB, [an_offer(2)], epoch=epoch) == ["FENCED"]


@pytest.mark.parametrize("got", [ALL, 1 << 9, -1])
def test_offer_of_nothing_to_run_is_a_mistake(claims: Claims, got: int) -> None:
    with pytest.raises(ValueError, match="nothing to run"):
        claims.offer(JOB, [an_offer(2, got=got)], epoch=5)


def test_expire(claims: Claims, any_redis: redis.Redis) -> None:
    claim(claims)
    with unchanged(any_redis):
        assert claims.expire(JOB, 1, epoch=4, token=ONE, beat=1) == "FENCED"
        assert claims.expire(JOB, 1, epoch=6, token=ONE, beat=1) == "FENCED"
        assert claims.expire(JOB, 1, epoch=5, token=TWO, beat=1) == "MOVED"
        assert claims.expire(JOB, 1, epoch=5, token=ONE, beat=0) == "MOVED"
        assert claims.expire(JOB, 9, epoch=5, token=ONE, beat=1) == "MOVED"
    assert claims.expire(JOB, 1, epoch=5, token=ONE, beat=1) == "OK"
    assert seen(claims) == Seen("READY", None, 1, 0, False, None)
    with unchanged(any_redis):
        assert claims.expire(JOB, 1, epoch=5, token=ONE, beat=1) == "MOVED"


def test_expire_leaves_what_is_full(claims: Claims, any_redis: redis.Redis) -> None:
    claim(claims)
    publish(claims, ALL)
    with unchanged(any_redis):
        assert claims.expire(JOB, 1, epoch=5, token=ONE, beat=1) == "MOVED"


def test_mark(claims: Claims, any_redis: redis.Redis) -> None:
    with unchanged(any_redis):
        assert claims.mark(JOB, 1, epoch=4, mask=0b1) == "FENCED"
        assert claims.mark(JOB, 9, epoch=5, mask=0b1) == "GONE"
    assert claims.mark(JOB, 1, epoch=5, mask=0b1) == "OK"
    assert claims.mark(JOB, 1, epoch=5, mask=1 << 8 | 1 << 9) == "OK"
    assert seen(claims) == Seen("READY", None, 0, 1 << 8 | 0b1, False, None)


def test_close(claims: Claims, any_redis: redis.Redis) -> None:
    claim(claims)
    with unchanged(any_redis):
        assert claims.close(JOB, [1], epoch=4) == ["FENCED"]
    assert claims.close(JOB, [1, 9], epoch=5) == ["OK", "OK"]
    assert claims.look(JOB).micro_batches == {}
    assert not any_redis.exists(keys.micro_batch(JOB, 1))
    assert publish(claims, 0b1) == "REFUSED"


def test_entries_read_on_and_drop(claims: Claims) -> None:
    claim(claims)
    for position in range(3):
        publish(claims, 1 << position)
    first, second = claims.entries(JOB, count=2)
    (third,) = claims.entries(JOB, after=second.id)
    claims.drop_entries(JOB, [first.id, third.id])
    assert claims.entries(JOB) == [second]
    claims.drop_entries(JOB, [])


def test_an_entry_that_is_not_ours_has_no_number(claims: Claims, any_redis: redis.Redis) -> None:
    entry_id = any_redis.xadd(keys.results(JOB), {"x": "y"})
    any_redis.expire(keys.results(JOB), 60)
    assert isinstance(entry_id, bytes)
    assert claims.entries(JOB) == [Entry(entry_id.decode(), None, b"")]


def test_finish_leaves_info_for_an_hour(claims: Claims, any_redis: redis.Redis) -> None:
    claim(claims)
    publish(claims, 0b1)
    with unchanged(any_redis):
        assert not claims.finish(JOB, epoch=4)
    assert claims.finish(JOB, epoch=5, fields={"exit": 1})
    assert any_redis.keys() == [keys.info(JOB).encode()]
    assert 0 < int(str(any_redis.ttl(keys.info(JOB)))) <= keys.DONE_LIFETIME_S
    assert claims.look(JOB).fields["exit"] == "1"
