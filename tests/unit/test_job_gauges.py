"""A collector of several jobs shows their sum, and nothing of a job it has let go of."""

from producer.metrics import BACKLOG, FRONTIER_LAG, WINDOW_BYTES, JobGauges


def shown() -> tuple[float, ...]:
    """The three gauges as they would be scraped."""
    return tuple(next(iter(gauge.collect())).samples[0].value for gauge in (BACKLOG, WINDOW_BYTES, FRONTIER_LAG))


def test_jobs_add_up_and_leave_nothing_behind() -> None:
    before = shown()
    one, other = JobGauges(), JobGauges()
    one.set(backlog=10, window_bytes=1000, frontier_lag=3)
    other.set(backlog=5, window_bytes=200, frontier_lag=0)
    one.set(backlog=7, window_bytes=900, frontier_lag=4)
    assert tuple(now - then for now, then in zip(shown(), before, strict=True)) == (12, 1100, 4)
    one.clear()
    assert tuple(now - then for now, then in zip(shown(), before, strict=True)) == (5, 200, 0)
    other.clear()
    other.clear()
    assert shown() == before
