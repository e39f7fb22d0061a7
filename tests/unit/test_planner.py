"""The planner: every request once, in order within its model, in micro-batches that keep their bounds."""

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer.planner import Planner, size_for
from producer.reader import InputLine

TOKENS = 1_000


def make_line(line: int, *, model: str = "m", tokens: int = 1) -> InputLine:
    return InputLine(line, 0, 1, str(line), "/v1/completions", model, b"{}", None, tokens, b"")


requests = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(1, TOKENS * 2), st.none() | st.integers(1, 9)), max_size=80
)


@given(requests=requests, size=st.integers(1, 9))
def test_every_request_once_in_order_within_bounds(requests: list[tuple[str, int, int | None]], size: int) -> None:
    planner = Planner(size=size, tokens=TOKENS)
    taken: dict[str, list[InputLine]] = defaultdict(list)
    batches: list[list[InputLine]] = []
    for number, (model, tokens, new_size) in enumerate(requests):
        planner.size = new_size or planner.size
        taken[model].append(make_line(number, model=model, tokens=tokens))
        full = planner.add(taken[model][-1])
        assert all(len(batch) <= planner.size for batch in full)
        batches += full
    last = list(planner.flush())
    assert all(len(batch) <= planner.size for batch in last)
    assert list(planner.flush()) == []
    given_out: dict[str, list[InputLine]] = defaultdict(list)
    for batch in batches + last:
        assert batch
        assert len({line.model for line in batch}) == 1
        assert len(batch) == 1 or sum(line.tokens for line in batch) <= TOKENS
        given_out[batch[0].model] += batch
    assert given_out == taken


def test_full_micro_batches_go_at_once() -> None:
    planner = Planner(size=3, tokens=TOKENS)
    lines = [make_line(number) for number in range(7)]
    given_out = [planner.add(line) for line in lines]
    assert given_out == [[], [], [lines[:3]], [], [], [lines[3:6]], []]
    assert list(planner.flush()) == [lines[6:]]


def test_a_request_above_the_tokens_travels_alone() -> None:
    planner = Planner(size=10, tokens=TOKENS)
    small, giant = make_line(1), make_line(2, tokens=TOKENS * 3)
    assert planner.add(small) == []
    assert planner.add(giant) == [[small], [giant]]


def test_tokens_may_be_filled_to_the_last_one() -> None:
    planner = Planner(size=10, tokens=TOKENS)
    lines = [make_line(1, tokens=TOKENS // 2), make_line(2, tokens=TOKENS // 2)]
    assert [planner.add(line) for line in lines] == [[], [lines]]


@pytest.mark.parametrize(
    ("remaining", "capacity", "size"),
    [(10_000, 80, 32), (320, 80, 32), (319, 80, 32), (160, 80, 16), (80, 80, 8), (10, 80, 1), (1, 80, 1), (5, 0, 32)],
)
def test_size_for_a_fleet(remaining: int, capacity: int, size: int) -> None:
    assert size_for(remaining, capacity, 32, workers=2) == size


@pytest.mark.parametrize("remaining", [1, 80, 10_000])
def test_a_lone_worker_has_nobody_to_share_with(remaining: int) -> None:
    assert size_for(remaining, 80, 32) == 32
    assert size_for(remaining, 8, 32) == 8


@pytest.mark.parametrize(("workers", "size"), [(1, 32), (10, 8), (9, 9), (200, 1)])
def test_no_micro_batch_is_larger_than_what_a_worker_runs_at_once(workers: int, size: int) -> None:
    assert size_for(10_000, 80, 32, workers=workers) == size


@given(remaining=st.integers(0, 10**6), capacity=st.integers(0, 10**5), default=st.integers(1, 4096))
def test_size_stays_within_one_and_default(remaining: int, capacity: int, default: int) -> None:
    size = size_for(remaining, capacity, default, workers=2)
    assert 1 <= size <= default
    assert size <= size_for(remaining + 1, capacity, default, workers=2)


def test_what_is_flushed_follows_the_size() -> None:
    planner = Planner(size=10, tokens=TOKENS)
    lines = [make_line(number) for number in range(7)]
    assert [planner.add(line) for line in lines] == [[]] * 7
    sizes = iter([3, 2, 1, 1])
    flushed = []
    planner.size = next(sizes)
    for batch in planner.flush():
        flushed.append(batch)
        planner.size = next(sizes, 9)
    assert flushed == [lines[:3], lines[3:5], lines[5:6], lines[6:]]


def test_endpoints_of_a_model_travel_apart_where_asked() -> None:
    chat, text = make_line(0), make_line(1)._replace(url="/v1/chat/completions")
    assert list(_with(chat, text, by_endpoint=True).flush()) == [[chat], [text]]
    assert list(_with(chat, text, by_endpoint=False).flush()) == [[chat, text]]


def _with(*lines: InputLine, by_endpoint: bool) -> Planner:
    planner = Planner(size=10, tokens=TOKENS, by_endpoint=by_endpoint)
    assert [planner.add(line) for line in lines] == [[]] * len(lines)
    return planner
