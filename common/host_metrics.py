"""The host as its workers and collectors see it: processor, memory, disks, network. Read when it is scraped.

All processes of a host say the same: where several are scraped, take one of them. In a container these are the whole
host's figures, but for the network, which is the container's own.
"""

import functools
from collections.abc import Iterator
from contextlib import suppress

import psutil
from prometheus_client import REGISTRY
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

LOOPBACK = "lo"


class HostMetrics(Collector):
    """This host's families; where the kernel does not tell of something, it has no series."""

    def describe(self) -> list[Metric]:
        """Names without series: nobody is asked."""
        return list(_families())

    def collect(self) -> Iterator[Metric]:
        """What the kernel says now."""
        cpu, used, total, disk, network = _families()
        for mode, seconds in cpu_seconds().items():
            cpu.add_metric([mode], seconds)
        memory = psutil.virtual_memory()
        used.add_metric([], memory.total - memory.available)
        total.add_metric([], memory.total)
        for family, moved in ((disk, disk_bytes()), (network, network_bytes())):
            for direction, count in moved.items():
                family.add_metric([direction], count)
        yield from (cpu, used, total, disk, network)


def cpu_seconds() -> dict[str, float]:
    """Seconds of all its processors since the host's start, by what they did."""
    times = psutil.cpu_times()
    return {
        "user": times.user + times.nice,
        "system": times.system + times.irq + times.softirq,
        "iowait": times.iowait,
        "steal": times.steal,
        "idle": times.idle,
    }


def disk_bytes() -> dict[str, int]:
    """Bytes moved to and from its disks since the host's start; {} where it shows none."""
    with suppress(OSError, NotImplementedError):  # a sandbox may hide them
        if counts := psutil.disk_io_counters(nowrap=False):
            return {"read": counts.read_bytes, "written": counts.write_bytes}
    return {}


def network_bytes() -> dict[str, int]:
    """Bytes received and sent since the host's start, by all interfaces but loopback."""
    interfaces = psutil.net_io_counters(pernic=True, nowrap=False)
    counts = [count for name, count in interfaces.items() if name != LOOPBACK]
    return {
        "received": sum(count.bytes_recv for count in counts),
        "sent": sum(count.bytes_sent for count in counts),
    }


def _families() -> tuple[
    CounterMetricFamily, GaugeMetricFamily, GaugeMetricFamily, CounterMetricFamily, CounterMetricFamily
]:
    return (
        CounterMetricFamily(
            "bakehouse_host_cpu_seconds",
            "Seconds of the host's processors since its start, by mode. When it is high, do this: `idle` near 0 with "
            "GPUs that wait, give the host more cores or fewer workers; `iowait` look at the disk; `steal` the "
            "machine is shared.",
            labels=["mode"],
        ),
        GaugeMetricFamily(
            "bakehouse_host_memory_used_bytes",
            "Memory of the host that nobody else can have now. When it is high, do this: near the total, fewer workers "
            "a host, or a smaller KV cache on a CPU; find the process in process_resident_memory_bytes.",
        ),
        GaugeMetricFamily(
            "bakehouse_host_memory_total_bytes", "Memory of the host. When it is high, do this: nothing."
        ),
        CounterMetricFamily(
            "bakehouse_host_disk_bytes",
            "Bytes read from and written to the host's disks since its start. When it is high, do this: during a start "
            "nothing, weights are read; later put the job directory and Redis' append-only file on other disks.",
            labels=["direction"],
        ),
        CounterMetricFamily(
            "bakehouse_host_network_bytes",
            "Bytes received and sent by the host since its start, loopback left out. When it is high, do this: near "
            "the line's speed, send images as URLs that workers fetch nearby, or put Redis nearer.",
            labels=["direction"],
        ),
    )


HOST = HostMetrics()


@functools.cache
def export_host() -> None:
    """Show the host among this process's metrics from now on."""
    REGISTRY.register(HOST)
