"""The window: what is outstanding, what may still be fed, and which micro-batches results complete."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.wire import Result
from producer.journal_reader import MicroBatchRow, pack_seqs, unpack_seqs
from producer.window import FIRST_RESULT_BYTES, Hint, Limits, Window, limits_for


def row(mb: int, seqs: tuple[int, ...], *, payload_bytes: int = 100) -> MicroBatchRow:
    return MicroBatchRow(mb, 0, "m", "normal", seqs, b"d", payload_bytes, 0.0, 0, 0)


def result(seq: int, *, round_: int = 0) -> Result:
    return Result(seq, round_, 200, "", 1, 0, 0, b"{}")


def test_results_complete_micro_batches_whatever_their_order() -> None:
    window = Window()
    window.add(row(1, (0, 1, 3)))
    second = window.add(row(2, (2, 5)))
    assert window.requests == 5
    assert window.settle([result(5), result(0), result(3)]) == []
    assert (second.missing, second.missing_seqs()) == (1, [2])
    assert window.settle([result(1), result(2)]) == [1, 2]
    window.remove([1, 2])
    assert (window.requests, window.payload_bytes, window.open) == (0, 0, {})


def test_results_of_no_open_micro_batch_change_nothing() -> None:
    window = Window()
    window.add(row(1, (0, 1)))
    assert window.settle([result(7), result(0, round_=1), result(0), result(0)]) == []
    assert window.requests == 1


def test_a_micro_batch_from_the_journal_counts_what_is_missing() -> None:
    window = Window()
    batch = window.add(row(4, (10, 11, 12)), got=0b101)
    assert (window.requests, batch.missing_seqs(), batch.missing_seqs(besides=0b10)) == (1, [11], [])
    assert window.settle([result(11)]) == [4]


def test_a_parted_micro_batch_lets_each_request_travel_once() -> None:
    window = Window()
    old = window.add(row(1, (0, 1, 2, 3)))
    assert window.settle([result(1)]) == []
    rest, solo = window.part(old, [row(2, (0, 3)), row(3, (2,))._replace(kind="solo")])
    assert (window.requests, window.payload_bytes) == (3, 200)
    assert (window.open, window.solos) == ({2: rest, 3: solo}, {3: solo})
    assert window.settle([result(2), result(3)]) == [3], "also where an entry of the old one brings it"
    assert (rest.got, window.requests) == (0b10, 1)
    window.remove([3])
    assert (window.open, window.solos) == ({2: rest}, {})


def test_the_oldest_hint_is_the_first_that_nobody_has_come_to() -> None:
    window = Window()
    first, second, _unhinted = (window.add(row(mb, (mb,))) for mb in (1, 2, 3))
    assert window.oldest_hint_s(now_s=9.0) == 0.0
    first.hint, second.hint = Hint(2.0, "q", 6), Hint(5.0, "q", 6)
    assert window.oldest_hint_s(now_s=9.0) == 7.0
    window.note_claim(first)
    assert window.oldest_hint_s(now_s=9.0) == 4.0
    window.note_claim(second)
    assert window.oldest_hint_s(now_s=9.0) == 0.0


def test_work_is_left_for_a_worker_until_all_is_claimed() -> None:
    window = Window()
    batches = [window.add(row(mb, (mb,))) for mb in range(3)]
    assert window.has_unclaimed
    for batch in batches:
        assert window.has_unclaimed
        window.note_claim(batch)
    assert not window.has_unclaimed


@pytest.mark.parametrize(
    ("capacity", "live_jobs", "cap", "expected"),
    [
        pytest.param(0, 1, None, Limits(8192, 1000), id="the least"),
        pytest.param(100, 1, None, Limits(8192, 1000), id="a small fleet"),
        pytest.param(5000, 1, None, Limits(20_000, 1000), id="four fleets"),
        pytest.param(5000, 4, None, Limits(5000, 250), id="shared by four jobs"),
        pytest.param(5000, 1, 7, Limits(7, 1000), id="capped by max_concurrency"),
        pytest.param(0, 1_000_000, None, Limits(1, 1), id="never nothing"),
    ],
)
def test_limits(capacity: int, live_jobs: int, cap: int | None, expected: Limits) -> None:
    assert expected == limits_for(
        window_requests=8192, window_bytes=1000, capacity=capacity, live_jobs=live_jobs, max_concurrency=cap
    )


def test_room_counts_payloads_and_expected_results() -> None:
    window = Window()
    window.add(row(1, (0, 1), payload_bytes=1000))
    assert window.bytes == 1000 + 2 * FIRST_RESULT_BYTES
    assert window.room(Limits(10, 20_000)) == Limits(8, 20_000 - 1000 - 2 * FIRST_RESULT_BYTES)
    assert window.room(Limits(1, 1)) == Limits(0, 0)
    for _ in range(1000):
        window.note_size(32_000, 32)
    assert window.result_bytes == pytest.approx(1000, rel=0.01)


def test_a_claim_is_known_by_the_hint_that_led_to_it() -> None:
    window = Window()
    batch = window.add(row(1, (0,)))
    assert not batch.claimed
    window.note_claim(batch)
    assert (batch.claimed, window.claimed_s) == (True, {})
    batch = window.add(row(2, (1, 2)))
    batch.hint = Hint(5.0, "q", 6)
    assert window.settle([result(1)]) == [], "its first result says it, not only its last"
    assert (batch.claimed, window.claimed_s) == (True, {("q", 6): 5.0})


@given(st.sets(st.integers(0, 2**40), min_size=1, max_size=64))
def test_seqs_survive_packing(seqs: set[int]) -> None:
    ordered = tuple(sorted(seqs))
    assert unpack_seqs(pack_seqs(ordered)) == ordered


def test_consecutive_seqs_take_a_byte_each() -> None:
    assert len(pack_seqs(tuple(range(10**6, 10**6 + 32)))) < 42
