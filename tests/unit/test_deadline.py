"""A deadline: which moment it means, how a job stands by it, and how many workers would make it."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import RefusedError
from producer.deadline import (
    NOWHERE,
    SLACK,
    Crew,
    Deadline,
    Standing,
    choose_deadline,
    judge,
    parse_moment,
    workers_needed,
)
from producer.deadline_file import leave_deadline, read_deadline
from producer.eta import Forecast

BERLIN = ZoneInfo("Europe/Berlin")
EVENING = datetime(2026, 11, 30, 22, 15, tzinfo=UTC)
"""23:15 in Berlin."""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("07:00", "2026-12-01T06:00+00:00", id="tomorrow morning"),
        pytest.param("7:00", "2026-12-01T06:00+00:00", id="one digit"),
        pytest.param("23:59", "2026-11-30T22:59+00:00", id="today"),
        pytest.param("23:15", "2026-12-01T22:15+00:00", id="this very minute is tomorrow's"),
        pytest.param("23:15:01", "2026-11-30T22:15:01+00:00", id="seconds"),
        pytest.param("00:30", "2026-11-30T23:30+00:00", id="past midnight there, not yet in UTC"),
        pytest.param("2026-12-01T07:00", "2026-12-01T06:00+00:00", id="ISO, local"),
        pytest.param("2026-12-01 07:00", "2026-12-01T06:00+00:00", id="ISO with a blank"),
        pytest.param("2026-12-01T07:00Z", "2026-12-01T07:00+00:00", id="ISO, UTC"),
        pytest.param("2026-12-01T07:00-05:00", "2026-12-01T12:00+00:00", id="ISO with an offset"),
        pytest.param("2026-07-01T07:00", "2026-07-01T05:00+00:00", id="ISO, in summer time"),
    ],
)
def test_which_moment_is_meant(text: str, expected: str) -> None:
    assert parse_moment(text, now=EVENING, zone=BERLIN) == datetime.fromisoformat(expected)


def test_a_time_of_day_is_that_of_the_clock_also_over_a_change_of_clocks() -> None:
    before = datetime(2026, 10, 24, 21, 0, tzinfo=UTC)  # 23:00 in summer time; the night has an hour more
    assert parse_moment("07:00", now=before, zone=BERLIN) == datetime(2026, 10, 25, 6, 0, tzinfo=UTC)


@pytest.mark.parametrize("text", ["", "soon", "25:00", "07:60", "7", "2026-12-01", "2026-13-01T07:00"])
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(RefusedError, match="deadline"):
        parse_moment(text, now=EVENING)


def test_a_past_moment_is_refused_and_the_same_words_again_are_not() -> None:
    past = "2026-11-30T22:14Z"
    with pytest.raises(RefusedError, match="past"):
        choose_deadline(past, kept=None, now=EVENING)
    kept = Deadline(past, datetime.fromisoformat(past))
    assert choose_deadline(past, kept=kept, now=EVENING) == kept


def test_the_same_command_the_next_day_keeps_the_moment_it_had() -> None:
    first = choose_deadline("07:00", kept=None, now=EVENING, zone=BERLIN)
    again = choose_deadline("07:00", kept=first, now=EVENING + timedelta(hours=10), zone=BERLIN)
    assert again == first
    moved = choose_deadline("09:30", kept=first, now=EVENING + timedelta(hours=10), zone=BERLIN)
    assert moved is not None
    assert moved.at == datetime(2026, 12, 1, 8, 30, tzinfo=UTC)
    assert choose_deadline(None, kept=first, now=EVENING) == first


def test_it_stays_in_its_file(tmp_path: Path) -> None:
    path = tmp_path / "deadline"
    assert read_deadline(path) is None
    for text in ("2026-12-01T07:00Z", "2026-12-02T07:00Z"):
        deadline = Deadline(text, datetime.fromisoformat(text))
        leave_deadline(path, deadline)
        assert read_deadline(path) == deadline
    path.write_text('{"given": ')
    assert read_deadline(path) is None
    assert [found.name for found in tmp_path.iterdir()] == ["deadline"]


HALF_DONE = Forecast(1000, 20.0, 400.0, per_worker_per_s=10.0, left_s=50.0)
"""By two workers."""
HURRIED = Standing(None, is_urgent=True)


@pytest.mark.parametrize(
    ("forecast", "left_s", "before", "expected"),
    [
        pytest.param(HALF_DONE, 100.0, NOWHERE, Standing(50.0), id="kept"),
        pytest.param(HALF_DONE, 54.0, NOWHERE, Standing(4.0, True), id="kept narrowly: hurry"),
        pytest.param(HALF_DONE, 60.0, NOWHERE, Standing(10.0), id="kept, no hurry yet"),
        pytest.param(HALF_DONE, 60.0, HURRIED, Standing(10.0, True), id="still in a hurry"),
        pytest.param(HALF_DONE, 70.0, HURRIED, Standing(20.0), id="no hurry any more"),
        pytest.param(HALF_DONE, 40.0, NOWHERE, Standing(-10.0, True, 3, True), id="missed by a worker"),
        pytest.param(HALF_DONE, 10.0, NOWHERE, Standing(-40.0, True, 11, True), id="missed by far"),
        pytest.param(HALF_DONE, -5.0, NOWHERE, Standing(-55.0, True, None, True), id="past"),
        pytest.param(Forecast(1000), 10.0, NOWHERE, NOWHERE, id="nothing known yet"),
        pytest.param(Forecast(1000), 10.0, HURRIED, HURRIED, id="nothing known any more"),
        pytest.param(Forecast(None, 5.0, per_worker_per_s=2.0), 10.0, NOWHERE, NOWHERE, id="an endless input"),
        pytest.param(Forecast(0, left_s=0.0), 10.0, NOWHERE, Standing(10.0), id="all there"),
    ],
)
def test_how_a_job_stands(forecast: Forecast, left_s: float, before: Standing, expected: Standing) -> None:
    assert judge(forecast, Crew(2, 40), left_s=left_s, before=before) == expected


@pytest.mark.parametrize(
    ("forecast", "workers", "untold_s", "expected"),
    [
        pytest.param(Forecast(1000), 0, 99.0, NOWHERE, id="nobody there yet"),
        pytest.param(Forecast(1000), 0, 101.0, Standing(None, True, None, True), id="nobody has come"),
        pytest.param(Forecast(1000), 2, 101.0, Standing(None, True, None, True), id="nothing has come of them"),
        pytest.param(
            Forecast(1000, per_worker_per_s=2.0), 0, 101.0, Standing(None, True, 3, True), id="all workers have gone"
        ),
    ],
)
def test_an_end_that_cannot_be_told_for_long_is_a_miss(
    forecast: Forecast, workers: int, untold_s: float, expected: Standing
) -> None:
    assert judge(forecast, Crew(workers), left_s=200.0, untold_s=untold_s) == expected


def test_workers_that_start_slowly_must_be_more() -> None:
    assert workers_needed(HALF_DONE, Crew(2), left_s=40.0) == 3
    assert workers_needed(HALF_DONE, Crew(2, start_s=30.0), left_s=40.0) == 5
    assert workers_needed(HALF_DONE, Crew(2, start_s=40.0), left_s=40.0) is None


def test_time_in_which_places_fall_empty_is_no_time_for_work() -> None:
    assert workers_needed(HALF_DONE._replace(tail_s=10.0), Crew(2), left_s=40.0) == 4
    assert workers_needed(HALF_DONE._replace(tail_s=40.0), Crew(2), left_s=40.0) is None


def test_nobody_else_ends_what_runs_already() -> None:
    assert workers_needed(HALF_DONE, Crew(2, in_flight=1000), left_s=40.0) is None


@given(
    left=st.integers(1, 10**7),
    each=st.floats(0.001, 1000),
    workers=st.integers(1, 100),
    left_s=st.floats(1, 10**5),
    start=st.floats(0, 0.9),
)
def test_the_workers_advised_would_make_it(left: int, each: float, workers: int, left_s: float, start: float) -> None:
    forecast = Forecast(left, per_worker_per_s=each, left_s=left / (each * workers))
    crew = Crew(workers, start_s=start * left_s)
    needed = judge(forecast, crew, left_s=left_s).workers_needed
    if needed is not None:
        assert needed > workers
        done = each * (workers * left_s + (needed - workers) * (left_s - crew.start_s))
        assert done >= left * 0.999
        assert SLACK < 1
