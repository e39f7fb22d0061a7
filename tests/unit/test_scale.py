"""The perfect dispatcher and the figures of `benchmarks.scale`."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.scale.dispatcher import dispatch
from benchmarks.scale.spans import (
    SimWorker,
    Span,
    full_after_s,
    idle_share,
    makespan_s,
    running_over_time,
    tail_idle_parts,
    tail_idle_share,
)

ONE = SimWorker("one", places=2, step_s=1.0)
LENGTHS = st.lists(st.integers(1, 50), min_size=1, max_size=60)


def test_each_row_goes_to_the_place_that_is_free_first() -> None:
    assert dispatch([5, 2, 1, 4], [ONE]) == [
        Span("one", 0.0, 5.0),
        Span("one", 0.0, 2.0),
        Span("one", 2.0, 3.0),
        Span("one", 3.0, 7.0),
    ]


def test_a_slow_worker_takes_longer_and_so_gets_less() -> None:
    spans = dispatch([2] * 9, [SimWorker("fast", 1, 1.0), SimWorker("slow", 1, 2.0)])
    assert [span.worker for span in spans].count("slow") == 3
    assert makespan_s(spans) == 12.0


def test_workers_join_late_and_leave_when_they_have_ended_what_they_run() -> None:
    late, leaving = SimWorker("late", 1, 1.0, from_s=5.0), SimWorker("leaving", 1, 1.0, until_s=4.0)
    spans = dispatch([3] * 4, [late, leaving])
    assert spans == [
        Span("leaving", 0.0, 3.0),
        Span("leaving", 3.0, 6.0),
        Span("late", 5.0, 8.0),
        Span("late", 8.0, 11.0),
    ]


@given(lengths=LENGTHS, workers=st.integers(1, 4), places=st.integers(1, 4))
def test_no_place_runs_two_rows_and_none_is_idle_while_rows_wait(lengths: list[int], workers: int, places: int) -> None:
    fleet = [SimWorker(str(number), places, 0.5) for number in range(workers)]
    spans = dispatch(lengths, fleet)
    assert max(running for _, running in running_over_time(spans)) == min(len(lengths), workers * places)
    assert sorted(round((span.ended_s - span.began_s) / 0.5) for span in spans) == sorted(lengths)
    last_begun_s = max(span.began_s for span in spans)
    full = [running for at_s, running in running_over_time(spans) if at_s < last_begun_s]
    assert all(running == workers * places for running in full)
    assert makespan_s(spans) <= (sum(lengths) / (workers * places) + max(lengths)) * 0.5 + 1e-9


def test_idle_share_counts_what_no_place_did() -> None:
    spans = [Span("one", 0.0, 4.0), Span("one", 0.0, 2.0)]
    assert idle_share(spans, [ONE], rows=(0.0, 1.0)) == pytest.approx(0.5)  # from the first end: 2 of 4
    assert idle_share([Span("one", 0.0, 4.0)] * 2, [ONE], rows=(0.0, 1.0)) == 0.0


def test_the_tail_begins_when_a_twentieth_of_the_rows_is_left() -> None:
    spans = [Span("one", float(number), number + 1.0) for number in range(100)]
    assert tail_idle_share(spans, [ONE]) == pytest.approx(0.5)
    stretched = [*spans[:99], Span("one", 99.0, 109.0)]
    assert tail_idle_share(stretched, [ONE]) == pytest.approx(1 - 14 / 28)
    pause_before_the_last = [*spans[:99], Span("one", 108.0, 109.0)]
    assert tail_idle_share(pause_before_the_last, [ONE]) == pytest.approx(1 - 5 / 28)


def test_places_that_are_not_there_are_not_idle() -> None:
    spans = [Span("one", 0.0, 4.0), Span("one", 0.0, 8.0)]  # the first end is at 4
    left = SimWorker("left", 8, 1.0, until_s=4.0)
    late = SimWorker("late", 8, 1.0, from_s=6.0)
    assert idle_share(spans, [ONE, left], rows=(0.0, 1.0)) == pytest.approx(0.5)
    assert idle_share(spans, [ONE, late], rows=(0.0, 1.0)) == pytest.approx(1 - 4 / (8 + 16))


def test_idle_time_is_told_by_what_there_was_to_run() -> None:
    """The tail is from 19 to 20, then until 30; the last row waits in Redis until 22, and in a worker until 26."""
    before = [Span("one", float(number), number + 1.0) for number in range(19)]
    late = Span("one", 26.0, 30.0, fed_s=1.0, taken_s=22.0)
    other = SimWorker("other", places=1, step_s=1.0)
    parts = tail_idle_parts([*before, late], [ONE, other])
    waited_in_redis_s, waited_in_worker_s, idle_s = 22 - 19, 26 - 22, 3 * (30 - 19) - 4
    assert parts["in_redis"] == pytest.approx(waited_in_redis_s / 33)
    assert parts["held_elsewhere"] == pytest.approx(waited_in_worker_s / 33)
    assert sum(parts.values()) == pytest.approx(idle_s / 33)
    assert sum(parts.values()) == pytest.approx(tail_idle_share([*before, late], [ONE, other]))


@given(lengths=LENGTHS, workers=st.integers(1, 4))
def test_with_the_perfect_dispatcher_nothing_waits_beside_an_idle_place(lengths: list[int], workers: int) -> None:
    fleet = [SimWorker(str(number), 2, 0.5) for number in range(workers)]
    spans = [span._replace(fed_s=0.0) for span in dispatch(lengths, fleet)]
    parts = tail_idle_parts(spans, fleet)
    assert parts["in_redis"] == pytest.approx(0.0)
    assert sum(parts.values()) == pytest.approx(tail_idle_share(spans, fleet))


def test_full_is_when_the_last_worker_is() -> None:
    two = SimWorker("two", places=1, step_s=1.0)
    spans = [Span("one", 0.0, 9.0), Span("two", 0.5, 1.0), Span("one", 2.0, 3.0)]
    assert full_after_s(spans, [ONE, two]) == 2.0
    assert full_after_s(spans[:2], [ONE, two]) == math.inf
    assert full_after_s(spans, [ONE, two, SimWorker("late", 1, 1.0, from_s=7.0)]) == 2.0
