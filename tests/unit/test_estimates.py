"""Estimates of answers: from limits, corrected by what has come, for the task and then for its endpoint."""

import pytest

from common.wire import Result
from producer.estimates import MOST_TASKS, Estimates, Task

URL = "/v1/chat/completions"
SHORT, LONG = Task("m", URL, "classify"), Task("m", URL, "translate")


def result(seq: int, tokens: int, *, status: int = 200) -> Result:
    return Result(seq, 0, status, "" if status == 200 else "timeout", 1, 10, tokens, b"{}")


def test_nothing_known_the_limit_it_is() -> None:
    assert Estimates().answer_tokens(SHORT, 400) == 400


def test_a_task_is_known_by_its_answers() -> None:
    estimates = Estimates()
    for seq, (task, tokens) in enumerate([(SHORT, 4), (LONG, 300)] * 30):
        estimates.expect(seq, task, 400)
        estimates.learn([result(seq, tokens)])
    assert estimates.answer_tokens(SHORT, 400) == pytest.approx(4)
    assert estimates.answer_tokens(LONG, 200) == pytest.approx(150)
    assert 4 < estimates.answer_tokens(Task("m", URL, "new"), 400) < 300
    assert estimates.answer_tokens(Task("n", URL, "classify"), 400) == 400


def test_it_follows_what_changes() -> None:
    estimates = Estimates()
    for seq in range(60):
        estimates.expect(seq, SHORT, 100)
        estimates.learn([result(seq, 10 if seq < 30 else 50)])
    assert estimates.answer_tokens(SHORT, 100) == pytest.approx(50, rel=0.05)


def test_failures_and_strangers_teach_nothing() -> None:
    estimates = Estimates()
    estimates.expect(1, SHORT, 100)
    estimates.expect(2, Task("m", "/v1/embeddings"), 0)
    estimates.learn([result(1, 0, status=504), result(2, 0), result(3, 50)])
    estimates.learn([result(1, 50)])
    assert estimates.answer_tokens(SHORT, 100) == 100


def test_it_stays_small() -> None:
    estimates = Estimates()
    for seq in range(MOST_TASKS + 10):
        estimates.expect(seq, Task("m", URL, str(seq)), 100)
        estimates.learn([result(seq, 10)])
    assert len(estimates._shares) == MOST_TASKS
    assert not estimates._expected
    assert estimates.answer_tokens(Task("m", URL, "new"), 100) == pytest.approx(10)
