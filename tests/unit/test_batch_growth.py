"""Growth of micro-batches: none for slow engines, in proportion for fast ones, never beyond its bound."""

import pytest

from producer.batch_growth import CALM_PER_S, STRETCH_S, BatchGrowth

SIZE = 32
CALM = int(CALM_PER_S * SIZE)
"""Results a second of one worker up to which nothing grows."""


@pytest.mark.parametrize(
    ("per_s", "workers", "factor"),
    [(0, 1, 1.0), (CALM, 1, 1.0), (2 * CALM, 1, 2.0), (2 * CALM, 2, 1.0), (99 * CALM, 1, 4.0), (99 * CALM, 0, 4.0)],
)
def test_the_pace_of_a_worker_decides(per_s: int, workers: int, factor: float) -> None:
    growth = BatchGrowth(SIZE, most=4.0)
    for second in range(4):
        growth.look(done=second * per_s, workers=workers, now_s=100.0 + second)
    assert growth.factor == pytest.approx(factor)


def test_what_was_there_before_is_no_pace() -> None:
    growth = BatchGrowth(SIZE, most=4.0)
    growth.look(done=1_000_000, workers=1, now_s=0.0)
    growth.look(done=1_000_000, workers=1, now_s=STRETCH_S)
    assert growth.factor == 1.0


def test_it_shrinks_again() -> None:
    growth = BatchGrowth(SIZE, most=4.0)
    for now_s, done in ((0.0, 0), (1.0, 9 * CALM), (2.0, 9 * CALM + 5)):
        growth.look(done=done, workers=1, now_s=now_s)
    assert growth.factor == 1.0


def test_counts_that_fall_begin_anew() -> None:
    """A rerun takes results back."""
    growth = BatchGrowth(SIZE, most=4.0)
    for now_s, done in ((0.0, 9 * CALM), (1.0, 0), (2.0, 2 * CALM)):
        growth.look(done=done, workers=1, now_s=now_s)
    assert growth.factor == pytest.approx(2.0)


def test_it_may_be_forbidden() -> None:
    growth = BatchGrowth(SIZE, most=1.0)
    for second in range(3):
        growth.look(done=second * 99 * CALM, workers=1, now_s=float(second))
    assert growth.factor == 1.0
