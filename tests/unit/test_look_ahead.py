"""The look-ahead: what it holds, what it reads of a prompt, and in which order it lets go."""

import json
from typing import Any

import pytest

from producer.estimates import Estimates, Task
from producer.look_ahead import MOST_BYTES, MOST_ROWS, PROMPT_CHARACTERS, LookAhead, beginning_of
from producer.reader import InputLine

URL = "/v1/completions"


def make_line(number: int, prompt: str = "", *, limit: int = 8, size_bytes: int = 0) -> InputLine:
    body = json.dumps({"prompt": prompt, "max_tokens": limit, "x": "x" * size_bytes}).encode()
    return InputLine(number, 0, 1, str(number), URL, "m", body, None, 10 + limit, b"")


def test_in_the_order_of_the_input_nothing_is_held() -> None:
    ahead = LookAhead("input", Estimates())
    assert ahead.add(make_line(1), seq=0) == [make_line(1)]
    assert (ahead.rows(5, most=100), ahead.is_full(0), ahead.let_go(places=None)) == (5, False, [])


def test_a_block_is_held_and_let_go_once() -> None:
    ahead = LookAhead("prefix", Estimates())
    assert (ahead.rows(5, most=100), ahead.rows(5, most=10**6), ahead.is_full(0)) == (100, MOST_ROWS, False)
    lines = [make_line(number, "ab"[number % 2]) for number in range(4)]
    assert [ahead.add(line, seq=seq) for seq, line in enumerate(lines)] == [[]] * 4
    assert (ahead.is_full(4), ahead.is_full(5)) == (True, False)
    assert ahead.let_go(places=None) == [lines[0], lines[2], lines[1], lines[3]]
    assert ahead.let_go(places=None) == []
    assert not ahead.is_full(0)


def test_a_block_of_large_lines_is_full_early() -> None:
    ahead = LookAhead("length", Estimates())
    for number in range(4):
        assert not ahead.is_full(100)
        ahead.add(make_line(number, size_bytes=MOST_BYTES // 4), seq=number)
    assert ahead.is_full(100)
    ahead.let_go(places=None)
    ahead.add(make_line(9), seq=9)
    assert not ahead.is_full(100)


def test_limits_are_corrected_by_what_has_come() -> None:
    estimates = Estimates()
    ahead = LookAhead("length", estimates)
    for seq in (0, 1):
        ahead.add(make_line(seq, "terse" if seq else "wordy", limit=200), seq=seq)
    assert [line.line for line in ahead.let_go(places=None)] == [0, 1]
    estimates._shares[Task("m", URL, "wordy")] = 0.1
    ahead.add(make_line(2, "wordy", limit=200), seq=2)
    ahead.add(make_line(3, "terse", limit=100), seq=3)
    assert [line.line for line in ahead.let_go(places=None)] == [3, 2]
    assert sorted(estimates._expected) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("body", "beginning"),
    [
        (
            {"messages": [{"role": "system", "content": "Be"}, {"role": "user", "content": "so"}]},
            "system\nBe\nuser\nso",
        ),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, 'user\n[{"type":"text"}]'),
        ({"messages": [{}]}, "None\nnull"),
        ({"prompt": "once " * 1000}, ("once " * 1000)[:PROMPT_CHARACTERS]),
        ({"prompt": [1, 2]}, "[1,2]"),
        ({"input": ["a", "b"]}, '["a","b"]'),
        ({"text_1": "a"}, ""),
    ],
)
def test_how_a_prompt_begins(body: dict[str, Any], beginning: str) -> None:
    assert beginning_of(body) == beginning
