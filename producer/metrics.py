"""What a collector counts while it feeds lines and settles results: each metric, its unit and what to do.

Labels come from closed sets and never carry ids; each of their values is there from the start, at 0. The gauges are
copies of what the journal and Redis say, and the journal stays the truth. They sum over the jobs that a process owns at
once (`collect --all`), each of which sets its own share.
"""

import threading
from collections.abc import Iterator

from prometheus_client import REGISTRY, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from common.exposition import OUTCOMES

HINT_REASONS = ("new", "redelivery", "unclaimed", "repair", "suspect", "left")
"""First hint of a micro-batch; after a lost hold; ready and long unclaimed; offered again after lost data; a suspect's
turn to travel alone; left in Redis by a collector that ended before its job."""

BACKLOG = Gauge(
    "bakehouse_backlog_requests",
    "Requests of this process's jobs without a result; those not read yet are estimated from the input's bytes. When "
    "it is high, do this: start more workers, or wait; it falls by results per second.",
)
WINDOW_REQUESTS = Gauge(
    "bakehouse_window_requests",
    "Requests of this process's jobs that are fed and have no result. When it is high, do this: nothing up to "
    "bakehouse_window_limit_requests; at it with idle workers, raise window_requests or max_concurrency.",
)
WINDOW_LIMIT = Gauge(
    "bakehouse_window_limit_requests",
    "Requests that this process's jobs may have fed and without a result: their share of the window. When it is high, "
    "do this: nothing; it follows the fleet's capacity.",
)
WINDOW_BYTES = Gauge(
    "bakehouse_window_bytes",
    "Bytes of payload and expected results outstanding in Redis for this process's jobs. When it is high, "
    "do this: nothing up to window_bytes; near it with idle workers, raise window_bytes and Redis' "
    "maxmemory.",
)
JOURNALED = Counter(
    "bakehouse_journaled_results_total",
    "Results journaled, by outcome. When it is high, do this: for `ok` nothing; for any other outcome read "
    "errors.jsonl of the job.",
    ["outcome"],
)
REDELIVERIES = Counter(
    "bakehouse_redeliveries_total",
    "Micro-batches given out again after a hold was lost. When it is high, do this: workers die or freeze; "
    "read the supervisor's log for the cause.",
)
POISON = Counter(
    "bakehouse_poison_total",
    "Requests proved to kill their worker's process, each a result `worker_lost`. When it is high, do this: read "
    "errors.jsonl for the lines and the supervisor's log for how the processes ended; without them the engine itself "
    "is broken.",
)
DUPLICATES = Counter(
    "bakehouse_duplicates_total",
    "Results that came a second time and were dropped. When it is high, do this: holds are lost while the "
    "work goes on; look for frozen workers, slow Redis or a network that cuts.",
)
FRONTIER_LAG = Gauge(
    "bakehouse_frontier_lag_requests",
    "Results journaled and not yet in the ordered file, since an earlier request is unfinished. When it is "
    "high, do this: find the slowest request (`producer status`); it costs disk in the journal, nothing "
    "else.",
)
JOURNAL_SECONDS = Histogram(
    "bakehouse_journal_seconds",
    "Seconds one synced commit of results to the journal took. When it is high, do this: move the job "
    "directory to a faster local disk.",
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10),
)
HINTS = Counter(
    "bakehouse_hints_total",
    "Hints sent, by reason. When it is high, do this: for `new` nothing; `redelivery` see redeliveries; "
    "`unclaimed` hints get lost or no worker serves the model; `repair` Redis lost data, check its append-"
    "only file; `suspect` a request was in two workers that died, see poison; `left` nothing.",
    ["reason"],
)
LIVE_WORKERS = Gauge(
    "bakehouse_live_workers",
    "Workers whose heartbeat stands in Redis. When it is high, do this: nothing; when it is low, start "
    "workers or read the supervisors' logs.",
)


class LeastGauge(Collector):
    """A gauge that shows the least of what jobs say; no series where none says anything."""

    def __init__(self, name: str, documentation: str) -> None:
        self._name, self._documentation = name, documentation
        self._values: dict[str, float] = {}

    def set(self, job: str, value: float) -> None:
        """What `job` says now, until it says something else."""
        self._values[job] = value

    def clear(self, job: str) -> None:
        """`job` says nothing any more."""
        self._values.pop(job, None)

    def describe(self) -> list[Metric]:
        """Its name, without a series."""
        return [GaugeMetricFamily(self._name, self._documentation)]

    def collect(self) -> Iterator[Metric]:
        """The least, if there is any."""
        if values := list(self._values.values()):
            yield GaugeMetricFamily(self._name, self._documentation, min(values))


DEADLINE_MARGIN = LeastGauge(
    "bakehouse_deadline_margin_seconds",
    "Seconds between the estimated end and the deadline, of the job that has the least; below 0 it will be late, and "
    "absent without a deadline. When it is high, do this: nothing; below 0, start as many workers as `producer status` "
    "names, or pause other jobs.",
)
REGISTRY.register(DEADLINE_MARGIN)


class JobGauges:
    """One job's share of the gauges that sum over jobs; cleared when its collector lets go of it."""

    _lock = threading.Lock()
    _gauges = (BACKLOG, WINDOW_REQUESTS, WINDOW_LIMIT, WINDOW_BYTES, FRONTIER_LAG)

    def __init__(self) -> None:
        self._shares = dict.fromkeys(self._gauges, 0)

    def set(
        self, *, backlog: int, window_requests: int, window_limit: int, window_bytes: int, frontier_lag: int
    ) -> None:
        """Replace this job's share. Whole numbers, so that what is added is taken away to the last one."""
        shares = (backlog, window_requests, window_limit, window_bytes, frontier_lag)
        now = dict(zip(self._gauges, shares, strict=True))
        with self._lock:
            for gauge, share in now.items():
                gauge.inc(share - self._shares[gauge])
            self._shares = now

    def clear(self) -> None:
        """This job is over, or another process's."""
        self.set(backlog=0, window_requests=0, window_limit=0, window_bytes=0, frontier_lag=0)


for _outcome in OUTCOMES:
    JOURNALED.labels(_outcome)
for _reason in HINT_REASONS:
    HINTS.labels(_reason)
