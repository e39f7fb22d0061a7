"""Every metric family that the code declares, also those that have no series on this machine."""

from collections.abc import Iterator
from types import ModuleType
from typing import NamedTuple

from prometheus_client.metrics import MetricWrapperBase

import common.host_metrics
import producer.metrics
import producer.redis_metrics
import worker.gpu_metrics
import worker.metrics
from common.host_metrics import HostMetrics
from producer.job_gauges import JobsGauge
from producer.redis_metrics import RedisMetrics
from worker.gpu_metrics import GpuMetrics

MODULES = (worker.metrics, producer.metrics, producer.redis_metrics, worker.gpu_metrics, common.host_metrics)
DO = " When it is high, do this: "


class Family(NamedTuple):
    """One metric as the code declares it."""

    name: str
    """As it is scraped, `_total` included; a histogram's without `_bucket`."""
    type: str
    labels: tuple[str, ...]
    documentation: str


def families_of(module: ModuleType) -> Iterator[Family]:
    """The metric families that `module` declares."""
    for value in vars(module).values():
        if isinstance(value, (MetricWrapperBase, JobsGauge, RedisMetrics, GpuMetrics, HostMetrics)):
            for family in value.describe():
                labels = getattr(value, "_labelnames", getattr(family, "_labelnames", ()))
                name = family.name + ("_total" if family.type == "counter" else "")
                yield Family(name, family.type, tuple(labels), family.documentation)


def all_families() -> list[Family]:
    """Those of every module."""
    return [family for module in MODULES for family in families_of(module)]
