"""Counts: figures of results, and their way through the journal."""

from common.wire import Result
from producer.counts import Counts


def result(seq: int, *, status: int = 200, code: str = "", attempts: int = 1) -> Result:
    return Result(seq, 0, status, code, attempts, 10, 5, b"{}")


def test_results_are_counted_by_outcome() -> None:
    counts = Counts(total=4, fed=4)
    counts.add([result(0), result(1, status=504, code="timeout", attempts=2), result(2, status=400, code="rejected")])
    assert (counts.done, counts.succeeded, counts.failed, counts.retried) == (3, 1, 2, 1)
    assert counts.failures == {"timeout": 1, "rejected": 1}
    assert (counts.prompt_tokens, counts.completion_tokens) == (30, 15)
    assert not counts.finished
    counts.add([result(3)])
    assert counts.finished


def test_a_line_refused_by_the_reader_was_never_attempted() -> None:
    counts = Counts()
    counts.add([result(0, status=400, code="invalid_json", attempts=0)])
    assert counts.retried == 0


def test_unknown_total_is_never_finished_and_empty_input_is() -> None:
    assert not Counts().finished
    assert Counts(total=0).finished


def test_counts_survive_json_and_a_copy_stands_still() -> None:
    counts = Counts(total=3, failures={"timeout": 1})
    assert Counts.from_json(counts.to_json()) == counts
    assert Counts.from_json("{}") == Counts()
    still = counts.copy()
    counts.add([result(0, status=504, code="timeout")])
    assert still == Counts(total=3, failures={"timeout": 1})
