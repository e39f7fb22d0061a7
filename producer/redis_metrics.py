"""The Redis of a fleet as metrics: its memory, queues and streams, who lives on it, and jobs that nobody collects.

Asked for when it is scraped, at most every 2 s, by each process that tells Prometheus of its targets; the same in all
of them, so take their `max`. It stays when a job's collector is gone, as long as one of them is there.
"""

import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, cast

import redis
from prometheus_client import REGISTRY
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from common import keys
from common.broker import LEFT_PRIORITIES, PRIORITIES, REDELIVERY_PRIORITY, SEPARATOR, make_client, redis_url
from common.settings import Settings
from common.wire import job_ids
from producer.fleet import LiveJobs, read_heartbeats

EVERY_S = 2.0
ASK_S = 2.0
"""A scrape waits no longer than this for each answer."""
CLASSES = {
    REDELIVERY_PRIORITY: "redelivery",
    **{priority: f"left_{name}" for name, priority in LEFT_PRIORITIES.items()},
    **{priority: name for name, priority in PRIORITIES.items()},
}
"""Priority of a hint -> the closed set of label `priority`."""
_SCAN_COUNT = 1000
METRICS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    (
        "redis_up",
        (),
        "Whether Redis answers. When it is high, do this: nothing; at 0, start it again, jobs go on by themselves.",
    ),
    (
        "redis_memory_used_bytes",
        (),
        "Memory that Redis uses. When it is high, do this: above 80 % of the limit nothing more is fed; raise "
        "maxmemory, or end other jobs.",
    ),
    (
        "redis_memory_limit_bytes",
        (),
        "Redis' maxmemory; absent where it has none. When it is high, do this: nothing up to what its host has.",
    ),
    (
        "queue_hints",
        ("priority",),
        "Hints that wait in all queues, by priority. When it is high, do this: nothing, it follows the fleet's "
        "capacity; `redelivery` see bakehouse_redeliveries_total; `left_*` start a collector.",
    ),
    (
        "stream_entries",
        (),
        "Entries in the results streams of all jobs, not journaled yet. When it is high, do this: look at the "
        "collector, or start one; then at the disk under its job directory.",
    ),
    (
        "live_workers",
        (),
        "Workers whose heartbeat stands in Redis. When it is high, do this: nothing; when it is low, start "
        "workers or read the supervisors' logs.",
    ),
    (
        "jobs",
        ("collector",),
        "Unfinished jobs, by whether a collector has them. When it is high, do this: for `alive` and `paused` "
        "nothing; for `gone` continue them on their own host (`producer resume JOB`).",
    ),
)
"""Name, labels and meaning of each."""


class RedisMetrics(Collector):
    """Families of one server; none before `watch`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._client: redis.Redis | None = None
        self._jobs = LiveJobs()
        self._asked_s = 0.0
        self._families: Sequence[Metric] = ()

    def watch(self, settings: Settings) -> None:
        """Show the server that `settings` name from now on."""
        with self._lock:
            self._client = make_client(redis_url(settings), socket_timeout_s=ASK_S)
            self._jobs = LiveJobs()
            self._families = ()

    def describe(self) -> list[Metric]:
        """Names without series: nobody is asked."""
        return list(_families().values())

    def collect(self) -> Iterator[Metric]:
        """What the server says, or said less than 2 s ago."""
        with self._lock:
            now_s = time.monotonic()
            if self._client is None:
                return
            if not self._families or now_s - self._asked_s >= EVERY_S:
                self._families = self._ask(self._client, now_s)
                self._asked_s = now_s
        yield from (family for family in self._families if family.samples)

    def _ask(self, client: redis.Redis, now_s: float) -> Sequence[Metric]:
        families = _families()
        try:
            self._fill(families, client, now_s)
        except redis.RedisError:
            families = _families()
            families["redis_up"].add_metric([], 0)
        else:
            families["redis_up"].add_metric([], 1)
        return list(families.values())

    def _fill(self, families: dict[str, GaugeMetricFamily], client: redis.Redis, now_s: float) -> None:
        memory = client.info("memory")
        families["redis_memory_used_bytes"].add_metric([], memory["used_memory"])
        if limit := memory.get("maxmemory"):
            families["redis_memory_limit_bytes"].add_metric([], limit)
        for priority, hints in _hints(client).items():
            families["queue_hints"].add_metric([priority], hints)
        families["stream_entries"].add_metric([], _stream_entries(client))
        families["live_workers"].add_metric([], len(read_heartbeats(client, keys.WORKER_PREFIX)))
        for state, jobs in self._jobs.look(client, now_s=now_s)._asdict().items():
            families["jobs"].add_metric([state], jobs)


def _hints(client: redis.Redis) -> dict[str, int]:
    """Hints that wait in all queues, by priority."""
    names = list(client.scan_iter(match=keys.QUEUE_PREFIX + "*", count=_SCAN_COUNT, _type="list"))
    with client.pipeline(transaction=False) as pipe:
        for name in names:
            pipe.llen(name)
        lengths = pipe.execute() if names else []
    hints = dict.fromkeys(CLASSES.values(), 0)
    for name, length in zip(names, lengths, strict=True):
        _, separated, priority = name.rpartition(SEPARATOR.encode())
        hints[CLASSES[int(priority) if separated else REDELIVERY_PRIORITY]] += length
    return hints


def _stream_entries(client: redis.Redis) -> int:
    jobs = job_ids(cast(list[bytes], client.hkeys(keys.JOBS)))
    with client.pipeline(transaction=False) as pipe:
        for job in jobs:
            pipe.xlen(keys.results(job))
        lengths: list[Any] = pipe.execute() if jobs else []
    return sum(lengths)


def _families() -> dict[str, GaugeMetricFamily]:
    return {name: GaugeMetricFamily(f"bakehouse_{name}", text, labels=labels) for name, labels, text in METRICS}


REDIS = RedisMetrics()
REGISTRY.register(REDIS)
