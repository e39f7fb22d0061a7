"""When a job will end, over made-up lives of jobs."""

import pytest

from producer.eta import SETTLED_RESULTS, SETTLED_S, Forecast, Forecaster


class Life:
    """A job of 10,000 requests, looked at every second."""

    def __init__(self) -> None:
        self._forecaster = Forecaster()
        self._now_s = 0.0
        self._done = 0.0

    def go_on(self, *, seconds: int, per_s: float, workers: int) -> Forecast:
        """For so long at so many results a second of each worker."""
        for _ in range(seconds):
            self._now_s += 1
            self._done += per_s * workers
            done = round(self._done)
            forecast = self._forecaster.look(
                done=done, tokens=10 * done, left=10_000 - done, workers=workers, now_s=self._now_s
            )
        return forecast


def test_a_steady_pace_is_told() -> None:
    forecast = Life().go_on(seconds=100, per_s=10, workers=2)
    assert forecast.left_s == pytest.approx(8_000 / 20, rel=0.01)
    assert forecast.results_per_s == pytest.approx(20, rel=0.01)
    assert forecast.tokens_per_s == pytest.approx(200, rel=0.01)
    assert forecast.per_worker_per_s == pytest.approx(10, rel=0.01)


@pytest.mark.parametrize("workers", [1, 4])
def test_workers_that_leave_or_join_count_at_once(workers: int) -> None:
    life = Life()
    life.go_on(seconds=100, per_s=10, workers=2)
    after = life.go_on(seconds=1, per_s=10, workers=workers)
    assert after.left_s == pytest.approx((after.left or 0) / (10 * workers), rel=0.03)


def test_a_pace_that_changes_is_noticed() -> None:
    life = Life()
    life.go_on(seconds=60, per_s=10, workers=2)
    after = life.go_on(seconds=60, per_s=2, workers=2)
    assert after.per_worker_per_s == pytest.approx(2, rel=0.05)


def test_what_an_earlier_collector_did_does_not_count_as_pace() -> None:
    forecaster = Forecaster()
    for second in range(20):
        forecast = forecaster.look(done=5_000 + 10 * second, tokens=0, left=1_000, workers=1, now_s=second)
    assert forecast.results_per_s == pytest.approx(10)
    assert forecast.left_s == pytest.approx(100)


def test_the_time_before_the_first_worker_does_not_count() -> None:
    forecaster = Forecaster()
    for second in range(600):
        assert forecaster.look(done=0, tokens=0, left=500, workers=0, now_s=second).left_s is None
    for second in range(20):
        forecast = forecaster.look(done=10 * second, tokens=0, left=500, workers=1, now_s=600 + second)
    assert forecast.left_s == pytest.approx(50)


@pytest.mark.parametrize(
    ("done", "seconds", "left", "workers"),
    [
        pytest.param(SETTLED_RESULTS - 1, 60.0, 1000, 1, id="too few results"),
        pytest.param(4, 60.0, 36, 1, id="too few of a small job"),
        pytest.param(1000, SETTLED_S - 1, 100, 1, id="too early"),
        pytest.param(1000, 60.0, None, 1, id="an input without an end"),
        pytest.param(1000, 60.0, 100, 0, id="no worker any more"),
    ],
)
def test_no_end_is_told_before_it_is_known(done: int, seconds: float, left: int | None, workers: int) -> None:
    forecaster = Forecaster()
    forecaster.look(done=0, tokens=0, left=left, workers=1, now_s=0.0)
    assert forecaster.look(done=done, tokens=0, left=left, workers=workers, now_s=seconds).left_s is None


@pytest.mark.parametrize(
    ("left", "tail_s"),
    [pytest.param(1_000, 8.0, id="40 in flight at 10 a second: 4 s each"), pytest.param(20, 4.0, id="the last 20")],
)
def test_the_last_requests_take_their_time(left: int, tail_s: float) -> None:
    forecaster = Forecaster()
    for second in range(20):
        forecast = forecaster.look(done=10 * second, tokens=0, left=left, workers=1, in_flight=40, now_s=second)
    assert forecast.tail_s == pytest.approx(tail_s)
    assert forecast.left_s == pytest.approx(left / 10 + tail_s)


def test_a_small_job_has_its_end_told_by_an_eighth_of_it() -> None:
    forecaster = Forecaster()
    forecaster.look(done=0, tokens=0, left=40, workers=1, now_s=0.0)
    assert forecaster.look(done=5, tokens=0, left=35, workers=1, now_s=50.0).left_s == pytest.approx(350)


def test_a_stall_pushes_the_end_away_until_none_is_told() -> None:
    life = Life()
    before = life.go_on(seconds=30, per_s=10, workers=2)
    slower = life.go_on(seconds=10, per_s=0, workers=2)
    assert slower.left_s is not None
    assert before.left_s is not None
    assert slower.left_s > 1.5 * before.left_s
    stalled = life.go_on(seconds=60, per_s=0, workers=2)
    assert stalled.left_s is None
    assert stalled.per_worker_per_s, "what a worker did is still known"


def test_what_a_worker_did_is_known_when_all_have_gone() -> None:
    life = Life()
    life.go_on(seconds=60, per_s=10, workers=2)
    gone = life.go_on(seconds=300, per_s=10, workers=0)
    assert gone.left_s is None
    assert gone.per_worker_per_s == pytest.approx(10, rel=0.1)


def test_all_there_is_all_there() -> None:
    forecaster = Forecaster()
    forecaster.look(done=0, tokens=0, left=3, workers=1, now_s=0.0)
    assert forecaster.look(done=3, tokens=0, left=0, workers=0, now_s=1.0).left_s == 0.0


def test_a_long_job_keeps_few_samples() -> None:
    forecaster = Forecaster()
    for look in range(20_000):
        forecaster.look(done=look, tokens=0, left=10, workers=1, now_s=0.5 * look)
    assert len(forecaster._samples) <= 602
