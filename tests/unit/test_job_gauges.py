"""A collector of several jobs shows their sum, or their least, and nothing of a job it has let go of."""

from typing import get_args

from producer.bottleneck import Name
from producer.job_gauges import JobShares
from producer.metrics import (
    BACKLOG,
    BOTTLENECK,
    DEADLINE_MARGIN,
    FRONTIER_LAG,
    WINDOW_BYTES,
    WINDOW_LIMIT,
    WINDOW_REQUESTS,
)

SHOWN = (BACKLOG, WINDOW_REQUESTS, WINDOW_LIMIT, WINDOW_BYTES, FRONTIER_LAG)


def shown() -> tuple[float, ...]:
    """The gauges as they would be scraped."""
    return tuple(next(iter(gauge.collect())).samples[0].value for gauge in SHOWN)


def test_jobs_add_up_and_leave_nothing_behind() -> None:
    before = shown()
    one, other = JobShares(), JobShares()
    one.set(dict(zip(SHOWN, (10, 8, 50, 1000, 3), strict=True)))
    other.set(dict(zip(SHOWN, (5, 4, 50, 200, 0), strict=True)))
    one.set(dict(zip(SHOWN, (7, 6, 40, 900, 4), strict=True)))
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


def shown_bottlenecks() -> dict[str, float]:
    """Jobs by what holds them up."""
    return {sample.labels["name"]: sample.value for family in BOTTLENECK.collect() for sample in family.samples}


def test_a_job_counts_for_one_bottleneck_at_a_time() -> None:
    one, other = JobShares(), JobShares()
    one.set({BOTTLENECK.labels("engines"): 1})
    other.set({BOTTLENECK.labels("engines"): 1})
    other.set({BOTTLENECK.labels("redis"): 1})
    assert {name for name, jobs in shown_bottlenecks().items() if jobs == 1} == {"engines", "redis"}
    one.clear()
    other.clear()
    assert set(shown_bottlenecks().values()) == {0}
    assert set(shown_bottlenecks()) == set(get_args(Name))
