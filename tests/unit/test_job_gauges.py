"""A collector of several jobs shows their sum, or their least, and nothing of a job it has let go of."""

from producer.metrics import (
    BACKLOG,
    DEADLINE_MARGIN,
    FRONTIER_LAG,
    WINDOW_BYTES,
    WINDOW_LIMIT,
    WINDOW_REQUESTS,
    JobGauges,
)

SHOWN = (BACKLOG, WINDOW_REQUESTS, WINDOW_LIMIT, WINDOW_BYTES, FRONTIER_LAG)


def shown() -> tuple[float, ...]:
    """The gauges as they would be scraped."""
    return tuple(next(iter(gauge.collect())).samples[0].value for gauge in SHOWN)


def test_jobs_add_up_and_leave_nothing_behind() -> None:
    before = shown()
    one, other = JobGauges(), JobGauges()
    one.set(backlog=10, window_requests=8, window_limit=50, window_bytes=1000, frontier_lag=3)
    other.set(backlog=5, window_requests=4, window_limit=50, window_bytes=200, frontier_lag=0)
    one.set(backlog=7, window_requests=6, window_limit=40, window_bytes=900, frontier_lag=4)
    assert tuple(now - then for now, then in zip(shown(), before, strict=True)) == (12, 10, 90, 1100, 4)
    one.clear()
    assert tuple(now - then for now, then in zip(shown(), before, strict=True)) == (5, 4, 50, 200, 0)
    other.clear()
    other.clear()
    assert shown() == before


def margins() -> list[float]:
    """The values of the deadline's gauge as they would be scraped."""
    return [sample.value for family in DEADLINE_MARGIN.collect() for sample in family.samples]


def test_the_least_margin_is_shown_and_none_without_a_deadline() -> None:
    assert margins() == []
    DEADLINE_MARGIN.set("one", 100.0)
    DEADLINE_MARGIN.set("other", -5.0)
    assert margins() == [-5.0]
    DEADLINE_MARGIN.clear("other")
    assert margins() == [100.0]
    DEADLINE_MARGIN.clear("one")
    DEADLINE_MARGIN.clear("one")
    assert margins() == []
