"""The figures of `benchmarks.ordering`."""

import pytest

from benchmarks.ordering.__main__ import lines_of
from benchmarks.ordering.job import Ran, hit_share, most_waiting, turns


@pytest.mark.parametrize(
    ("ended_at", "most"), [([], 0), ([1.0, 2.0, 3.0], 0), ([3.0, 2.0, 1.0], 2), ([2.0, 1.0, 9.0, 3.0, 4.0, 10.0], 2)]
)
def test_most_waiting_is_what_an_earlier_row_holds_up(ended_at: list[float], most: int) -> None:
    assert most_waiting(ended_at) == most


def test_hits_are_a_share_of_all_prompt_tokens() -> None:
    cached = {"prompt_tokens": 30, "prompt_tokens_details": {"cached_tokens": 20}}
    assert hit_share([cached, {"prompt_tokens": 10, "prompt_tokens_details": None}]) == pytest.approx(0.5)
    assert hit_share([]) == 0.0


def test_another_order_begins_each_repeat() -> None:
    assert turns(["input", "length"], repeats=2) == [(0, "input"), (0, "length"), (1, "length"), (1, "input")]


def test_ratios_are_of_neighbours_in_time() -> None:
    lines = lines_of("rows", {"input": [Ran(10, 1, 0.0), Ran(20, 2, 0.0)], "length": [Ran(9, 7, 0.0), Ran(16, 8, 0.0)]})
    assert [list(line.ratios) for line in lines] == [[], pytest.approx([0.9, 0.8])]
    assert lines[1].cells() == ["rows", "length", "12.5", "0.850", "8", "-"]
