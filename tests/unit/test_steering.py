"""What a wish makes of a job, and when a job pauses itself: the policy, as tables and in any order."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer.counts import Counts
from producer.steering import HEARD, Course, JobState, Steering, Verb, Wish, end, find_failing, obey, pause

VERBS = st.sampled_from(get_args(Verb))
WISHES = st.lists(st.tuples(VERBS, st.integers(0, 5)).map(lambda pair: Wish(pair[0], f"{pair[1]:016x}")), max_size=12)


def steer(course: Course, *wishes: Wish, counts: Counts | None = None) -> Course:
    """What `course` becomes by `wishes`."""
    return obey(course, wishes, counts=counts or Counts(), why="asked for")


@pytest.mark.parametrize(
    ("state", "verb", "becomes"),
    [
        ("open", "pause", "paused"),
        ("open", "resume", "open"),
        ("open", "cancel", "cancelling"),
        ("paused", "pause", "paused"),
        ("paused", "resume", "open"),
        ("paused", "cancel", "cancelling"),
        ("cancelling", "pause", "cancelling"),
        ("cancelling", "resume", "cancelling"),
        ("cancelling", "cancel", "cancelling"),
        ("done", "pause", "done"),
        ("done", "resume", "done"),
        ("done", "cancel", "done"),
    ],
)
def test_what_a_wish_makes_of_a_job(state: JobState, verb: Verb, becomes: JobState) -> None:
    course = steer(Course(state, Steering()), Wish.make(verb))
    assert course.state == becomes
    assert course.steering.reason == ("asked for" if (state, becomes) == ("open", "paused") else "")


def test_a_pause_keeps_the_reason_it_had_first() -> None:
    course = pause(Course("open", Steering()), reason="it fails")
    assert steer(course, Wish.make("pause")).steering.reason == "it fails"


@given(WISHES)
def test_a_wish_is_obeyed_once(wishes: list[Wish]) -> None:
    """Found again, alone or with others, in any source: nothing happens. And the journal says the same."""
    course = steer(Course("open", Steering()), *wishes)
    restored = course._replace(steering=Steering.from_json(course.steering.to_json()))
    assert restored == course
    assert steer(restored, *wishes) == course
    for wish in wishes:
        assert steer(restored, wish).state == course.state


@given(WISHES)
def test_no_wish_takes_a_cancel_back(wishes: list[Wish]) -> None:
    course = steer(Course("open", Steering()), Wish("cancel", "f" * 16), *wishes)
    assert course.state == "cancelling"
    assert end(course).steering.cancelled


def test_what_stands_somewhere_is_never_forgotten() -> None:
    """A file keeps its wish for ever, however many others come by Redis."""
    standing, course = Wish.make("pause"), Course("open", Steering())
    for _ in range(2 * HEARD):
        course = steer(course, standing, Wish.make("resume"))
    assert course.state == "open"
    assert standing.nonce in course.steering.heard
    assert len(course.steering.heard) == HEARD


@pytest.mark.parametrize("text", [None, "", "pause", "pause:12", "stop:0123456789abcdef", "pause:0123456789ABCDEF\n"])
def test_what_is_no_wish(text: str | None) -> None:
    assert Wish.parse(text) is None


def test_a_wish_is_read_as_it_was_written() -> None:
    wish = Wish.make("cancel")
    assert Wish.parse(str(wish)) == wish


@pytest.mark.parametrize(
    ("done", "failures", "reason"),
    [
        (49, {"engine_error": 49}, None),
        (50, {"engine_error": 10}, None),
        (50, {"engine_error": 11}, "11 of 50 results are 5xx (engine_error 11)"),
        (60, {"engine_error": 20, "timeout": 3}, "23 of 60 results are 5xx (engine_error 20, timeout 3)"),
        (60, {"worker_lost": 13}, "13 of 60 results are 5xx (worker_lost 13)"),
        (90, {"invalid_request": 30, "rejected": 30, "cancelled": 30}, None),
        (90, {"invalid_request": 70, "overloaded": 18}, None),
    ],
)
def test_a_job_pauses_itself_when_too_much_fails(done: int, failures: dict[str, int], reason: str | None) -> None:
    counts = Counts(total=1000, done=done, failures=failures)
    assert find_failing(Steering(), counts, above=0.2) == reason
    assert find_failing(Steering(), counts, above=1.0) is None


def test_failures_are_counted_anew_after_a_resume() -> None:
    before = Counts(total=1000, done=60, failures={"engine_error": 60})
    course = steer(Course("paused", Steering(reason="it fails")), Wish.make("resume"), counts=before)
    still = Counts(total=1000, done=109, failures={"engine_error": 109})
    assert find_failing(course.steering, still, above=0.2) is None
    worse = Counts(total=1000, done=110, failures={"engine_error": 100, "timeout": 10})
    said = "50 of 50 results since the last resume are 5xx (engine_error 40, timeout 10)"
    assert find_failing(course.steering, worse, above=0.2) == said
