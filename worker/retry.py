"""Whether and when a request that failed is tried again: pure policy, asked by the runner after each failed attempt.

A retry is another attempt of one request by the worker that has it. With p the chance that an attempt succeeds
and r retries, 1 - (1 - p)^(r + 1) of the requests succeed: p = 0.8, r = 2 gives 99.2 %.
"""

import random

from common.errors import ErrorKind

JITTER = 0.2
"""Waits differ by up to this share, or requests that failed together would come back together."""
LONGEST_WAIT_S = 60.0
"""Only reached with many retries: waiting longer than this helps no engine."""
MOST_TIMEOUT_RETRIES = 1
"""A request that used up its time twice will use it up again."""


def wait_before_retry(
    kind: ErrorKind,
    *,
    attempt: int,
    timeouts: int,
    max_retries: int,
    first_wait_s: float,
    rng: random.Random,
) -> float | None:
    """Seconds to wait before the next attempt, None to give up.

    `attempt`: how many attempts there were, the failed one included. `timeouts`: how many of them timed out.
    """
    if not kind.retryable or attempt > max_retries:
        return None
    if kind is ErrorKind.TIMEOUT and timeouts > MOST_TIMEOUT_RETRIES:
        return None
    wait_s = min(first_wait_s * 2.0 ** (attempt - 1), LONGEST_WAIT_S)
    return wait_s * rng.uniform(1 - JITTER, 1 + JITTER)
