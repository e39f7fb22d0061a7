"""The retry policy: which failures are tried again, how often, after how long."""

import random

import pytest

from common.errors import ErrorKind
from worker.retry import LONGEST_WAIT_S, wait_before_retry

FINAL = [kind for kind in ErrorKind if not kind.retryable]


def wait(kind: ErrorKind, *, attempt: int = 1, timeouts: int = 0, max_retries: int = 3) -> float | None:
    return wait_before_retry(
        kind, attempt=attempt, timeouts=timeouts, max_retries=max_retries, first_wait_s=1.0, rng=random.Random(0)
    )


@pytest.mark.parametrize("kind", FINAL)
def test_final_at_once(kind: ErrorKind) -> None:
    assert wait(kind) is None


@pytest.mark.parametrize("kind", [ErrorKind.OVERLOADED, ErrorKind.ENGINE_ERROR])
def test_waits_double_and_end(kind: ErrorKind) -> None:
    waits = [wait(kind, attempt=attempt) for attempt in (1, 2, 3, 4)]
    assert waits[3] is None
    for waited, stated in zip(waits, (1, 2, 4), strict=False):
        assert waited is not None
        assert 0.8 * stated <= waited <= 1.2 * stated


def test_no_retries_wanted() -> None:
    assert wait(ErrorKind.OVERLOADED, max_retries=0) is None


def test_timeout_is_retried_once() -> None:
    assert wait(ErrorKind.TIMEOUT, attempt=1, timeouts=1) is not None
    assert wait(ErrorKind.TIMEOUT, attempt=2, timeouts=1) is not None
    assert wait(ErrorKind.TIMEOUT, attempt=2, timeouts=2) is None


def test_waits_are_bounded() -> None:
    waited = wait(ErrorKind.OVERLOADED, attempt=20, max_retries=20)
    assert waited is not None
    assert waited <= 1.2 * LONGEST_WAIT_S


def test_waits_differ() -> None:
    rng = random.Random(1)
    waits = {
        wait_before_retry(ErrorKind.OVERLOADED, attempt=1, timeouts=0, max_retries=1, first_wait_s=1.0, rng=rng)
        for _ in range(20)
    }
    assert len(waits) == 20
