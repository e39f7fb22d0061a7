"""Gauges of a process that owns several jobs at once: each job sets its own, a scrape sees them combined."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence

from prometheus_client import REGISTRY, Gauge
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


class JobsGauge(Collector):
    """What jobs say, combined (`min`, `max` or `sum`) when it is scraped; no series where none says anything."""

    def __init__(self, name: str, documentation: str, *, combine: Callable[[Sequence[float]], float]) -> None:
        self._name, self._documentation, self._combine = name, documentation, combine
        self._values: dict[str, float] = {}
        REGISTRY.register(self)

    def set(self, job: str, value: float | None) -> None:
        """What `job` says now, until it says something else; None: nothing."""
        if value is None:
            self.clear(job)
        else:
            self._values[job] = value

    def clear(self, job: str) -> None:
        """`job` says nothing any more."""
        self._values.pop(job, None)

    def describe(self) -> list[Metric]:
        """Its name, without a series."""
        return [GaugeMetricFamily(self._name, self._documentation)]

    def collect(self) -> Iterator[Metric]:
        """What they come to, if there is any."""
        if values := list(self._values.values()):
            yield GaugeMetricFamily(self._name, self._documentation, self._combine(values))


class JobShares:
    """One job's shares of gauges that sum over jobs and are there at 0 without one."""

    _lock = threading.Lock()

    def __init__(self) -> None:
        self._shares: Mapping[Gauge, int] = {}

    def set(self, shares: Mapping[Gauge, int]) -> None:
        """Replace this job's shares. Whole numbers, so that what is added is taken away to the last one."""
        with self._lock:
            for gauge in shares.keys() | self._shares.keys():
                gauge.inc(shares.get(gauge, 0) - self._shares.get(gauge, 0))
            self._shares = shares

    def clear(self) -> None:
        """This job is over, or another process's."""
        self.set({})
