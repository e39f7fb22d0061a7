"""When a job will end: what each live worker did for it in the last stretch, times those that are there now. Pure.

The pace is measured per worker, so that one that joins or leaves counts from its first second. How long the stretch is
grows with the job's age: short enough to notice a change, long enough not to take noise for one.
"""

from collections import deque
from typing import NamedTuple

EVERY_S = 1.0
"""Samples are so far apart: at most `LONGEST_S` of them are kept."""
SHORTEST_S, LONGEST_S = 10.0, 600.0
STRETCH_SHARE = 0.5
"""The stretch is so much of the job's age, between the two above."""
TAIL = 2.0
"""The last requests of a job leave places empty: it ends so many times a request's mean time later than by its pace."""
SETTLED_S = 5.0
SETTLED_RESULTS = 16
SETTLED_SHARE = 1 / 8
"""Of fewer results, in a small job of a smaller share of all, or within less time no first end is told: 16 results are
off by a quarter."""


class Sample(NamedTuple):
    """How far a job was at one moment; `at_s` is monotonic."""

    at_s: float
    done: int
    tokens: int
    worker_s: float
    """Seconds that workers were there for it, summed over workers."""


class Forecast(NamedTuple):
    """What is to be expected."""

    left: int | None
    """Requests without a result, those not read yet included; None: nobody knows how many will come."""
    results_per_s: float = 0.0
    tokens_per_s: float = 0.0
    per_worker_per_s: float | None = None
    """Results a second of each worker, as last known; None while it is not."""
    left_s: float | None = None
    """Seconds to the end; None while it cannot be told: too early, nobody works, nothing comes."""
    tail_s: float = 0.0
    """Those of them in which places fall empty, whoever else is there."""


class Forecaster:
    """One job's, for the life of its collector."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque()
        self._began: Sample | None = None
        """When the first worker was there."""
        self._workers = 0
        self._at_s = 0.0
        self._worker_s = 0.0
        self._is_settled = False
        self._each: float | None = None

    def look(
        self, *, done: int, tokens: int, left: int | None, workers: int, now_s: float, in_flight: float = 0.0
    ) -> Forecast:
        """Note how far it is at `now_s` (monotonic) and tell what is to come; `left` is None for an endless input.

        `in_flight`: of its requests, about.
        """
        if self._began is not None:
            self._worker_s += self._workers * (now_s - self._at_s)
        self._workers, self._at_s = workers, now_s
        now = Sample(now_s, done, tokens, self._worker_s)
        if self._began is None:
            if not workers:
                return Forecast(left)
            self._began = now
        self._note(now)
        return self._forecast(now, left, in_flight)

    def _note(self, now: Sample) -> None:
        samples = self._samples
        if not samples or now.at_s - samples[-1].at_s >= EVERY_S:
            samples.append(now)
        assert self._began is not None
        stretch_s = min(LONGEST_S, max(SHORTEST_S, STRETCH_SHARE * (now.at_s - self._began.at_s)))
        while len(samples) > 1 and samples[1].at_s <= now.at_s - stretch_s:
            samples.popleft()

    def _forecast(self, now: Sample, left: int | None, in_flight: float) -> Forecast:
        then = self._samples[0]
        span_s, done, worker_s = now.at_s - then.at_s, now.done - then.done, now.worker_s - then.worker_s
        if span_s <= 0:
            return Forecast(left)
        per_s, tokens_per_s = done / span_s, (now.tokens - then.tokens) / span_s
        if left == 0:
            return Forecast(0, per_s, tokens_per_s, left_s=0.0)
        enough = min(SETTLED_RESULTS, SETTLED_SHARE * (done + (left or 0)))
        self._is_settled = self._is_settled or (span_s >= SETTLED_S and done >= max(1, enough))
        pace = 0.0
        if self._is_settled and self._workers and worker_s >= SETTLED_S and done:
            self._each = done / worker_s
            pace = self._each * self._workers
        if left is None or not pace:
            return Forecast(left, per_s, tokens_per_s, self._each)
        tail_s = TAIL * min(in_flight, left) / pace  # a request's mean time is what is in flight by the pace
        return Forecast(left, per_s, tokens_per_s, self._each, left / pace + tail_s, tail_s)
