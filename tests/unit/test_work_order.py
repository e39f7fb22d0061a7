"""The order of work: every request once, whatever the order; what begins alike together; what is long first."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.settings import Order
from producer.work_order import Work, arrange

CHAT, EMBEDDINGS = "/v1/chat/completions", "/v1/embeddings"
WORKS = st.lists(
    st.builds(
        Work,
        st.sampled_from("mno"),
        st.sampled_from([CHAT, EMBEDDINGS]),
        st.text("ab", max_size=4),
        st.floats(0, 1e6),
    ),
    max_size=60,
)
ORDERS: st.SearchStrategy[Order] = st.sampled_from(["input", "prefix", "length"])


@given(works=WORKS, order=ORDERS, places=st.none() | st.integers(0, 20))
def test_every_request_goes_once(works: list[Work], order: Order, places: int | None) -> None:
    assert sorted(arrange(works, order=order, places=places)) == list(range(len(works)))


@given(works=WORKS, order=ORDERS, places=st.none() | st.integers(0, 20))
def test_no_model_waits_for_another(works: list[Work], order: Order, places: int | None) -> None:
    """Each has had its share of what is gone so far, up to one request."""
    models = [work.model for work in works]
    if order == "input":
        return
    gone = [models[at] for at in arrange(works, order=order, places=places)]
    for model in set(models):
        share = models.count(model) / len(models)
        for count in range(len(gone)):
            assert abs(gone[:count].count(model) - share * count) <= len(set(models))


@given(works=WORKS)
def test_the_longest_go_first(works: list[Work]) -> None:
    works = [work._replace(model="m") for work in works]
    tokens = [works[at].tokens for at in arrange(works, order="length")]
    assert tokens == sorted(tokens, reverse=True)


@given(works=WORKS)
def test_what_begins_alike_stands_together(works: list[Work]) -> None:
    works = [work._replace(model="m") for work in works]
    arranged = [works[at] for at in arrange(works, order="prefix")]
    for length in range(5):
        beginnings = [(work.url, work.prompt[:length]) for work in arranged]
        changes = sum(one != other for one, other in pairwise(beginnings))
        assert changes == max(0, len(set(beginnings)) - 1)


def test_at_the_end_the_few_longest_go_before_what_begins_alike() -> None:
    works = [Work("m", CHAT, prompt, 10) for prompt in "abab"]
    works[2:2] = [Work("m", CHAT, "a", 100), Work("m", CHAT, "b", 200), Work("m", CHAT, "b", 150)]
    assert arrange(works, order="prefix") == [2, 0, 5, 3, 4, 1, 6]
    assert arrange(works, order="prefix", places=2) == [3, 4, 2, 0, 5, 1, 6]


def test_equal_lengths_break_no_group_up() -> None:
    works = [Work("m", CHAT, prompt, 10) for prompt in "abab"]
    assert arrange(works, order="prefix", places=2) == [0, 2, 1, 3]


@pytest.mark.parametrize("order", ["prefix", "length"])
def test_models_take_turns(order: Order) -> None:
    works = [Work(model, CHAT, "p", 1) for model in "mmmmnn"]
    assert [works[at].model for at in arrange(works, order=order)] == list("mnmmnm")
