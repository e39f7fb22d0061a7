"""The GPUs that a worker is pinned to, as the driver's management library (NVML) sees them; nothing without a GPU.

Read when they are scraped, but for the peak of memory, which is looked for every second. `pynvml` comes with the extra
`gpu` and is imported here alone.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from prometheus_client import REGISTRY
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from worker.gpu import visible_devices

LOOK_S = 1.0
_MILLIWATTS = 1000.0


class Device:
    """One GPU. What it does not tell (a slice of a shared GPU has no power of its own) is None."""

    def __init__(self, nvml: Any, handle: Any, *, position: int) -> None:
        self._nvml = nvml
        self._handle = handle
        index = self._ask(lambda: nvml.nvmlDeviceGetIndex(handle))
        self.name = str(position if index is None else index)
        """The driver's index, the place in the worker's own list where it has none."""
        self.peak_bytes = 0

    def memory(self) -> tuple[int, int] | None:
        """Used and total bytes; notes the peak."""
        found = self._ask(lambda: self._nvml.nvmlDeviceGetMemoryInfo(self._handle))
        if found is None:
            return None
        self.peak_bytes = max(self.peak_bytes, found.used)
        return found.used, found.total

    def use_ratio(self) -> float | None:
        """The share of the driver's last sampling period in which a kernel ran."""
        found = self._ask(lambda: self._nvml.nvmlDeviceGetUtilizationRates(self._handle))
        return None if found is None else found.gpu / 100

    def watts(self) -> float | None:
        """What it draws."""
        found = self._ask(lambda: self._nvml.nvmlDeviceGetPowerUsage(self._handle))
        return None if found is None else found / _MILLIWATTS

    def _ask(self, question: Callable[[], Any]) -> Any:
        with suppress(self._nvml.NVMLError):
            return question()
        return None


class GpuMetrics(Collector):
    """Families of some GPUs; none at all without one."""

    def __init__(self) -> None:
        self._devices: Sequence[Device] = ()

    def watch(self, devices: Sequence[Device]) -> None:
        """Show `devices` from now on, and look for the peak of their memory in a thread."""
        self._devices = devices
        if devices:
            threading.Thread(target=self._look, name="gpu-watch", daemon=True).start()

    def describe(self) -> list[Metric]:
        """Names without series: no GPU is asked."""
        return list(_families())

    def collect(self) -> Iterator[Metric]:
        """What the driver says now."""
        if not self._devices:
            return
        families = _families()
        for device in self._devices:
            used, total = device.memory() or (None, None)
            peak = None if used is None else device.peak_bytes
            values = (device.use_ratio(), used, peak, total, device.watts())
            for family, value in zip(families, values, strict=True):
                if value is not None:
                    family.add_metric([device.name], value)
        yield from (family for family in families if family.samples)

    def _look(self) -> None:
        pause = threading.Event()
        while not pause.wait(LOOK_S):
            for device in self._devices:
                device.memory()


def find_devices(environment: Mapping[str, str]) -> list[Device]:
    """The GPUs that a process with `environment` sees; [] where none is visible, and without driver or `pynvml`."""
    visible = visible_devices(environment)
    if visible == []:
        return []
    try:
        import pynvml
    except ImportError:
        return []
    try:
        pynvml.nvmlInit()
        there = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        handles = there if visible is None else [_handle(pynvml, name, there=there) for name in visible]
    except pynvml.NVMLError:
        return []
    return [Device(pynvml, handle, position=position) for position, handle in enumerate(handles)]


def _handle(nvml: Any, name: str, *, there: Sequence[Any]) -> Any:
    """The GPU called `name`, an index or the beginning of a UUID; a slice of a shared one has its whole UUID."""
    if name.isdigit():
        return nvml.nvmlDeviceGetHandleByIndex(int(name))
    named = [handle for handle in there if nvml.nvmlDeviceGetUUID(handle).startswith(name)]
    return named[0] if named else nvml.nvmlDeviceGetHandleByUUID(name)


def _families() -> tuple[GaugeMetricFamily, ...]:
    return tuple(
        GaugeMetricFamily(f"bakehouse_gpu_{name}", documentation, labels=["gpu"])
        for name, documentation in (
            (
                "use_ratio",
                "Share of the last moment in which this GPU of the worker ran anything. When it is high, do this: "
                "nothing; low with a backlog, compare requests in flight with the target.",
            ),
            (
                "memory_used_bytes",
                "Memory in use on this GPU, whoever uses it. When it is high, do this: nothing, vLLM takes its share "
                "(--gpu-memory-utilization) at its start; above that somebody else is on the GPU.",
            ),
            (
                "memory_peak_bytes",
                "The most memory that was in use on this GPU since the worker's start. When it is high, do this: at "
                "the total, lower --gpu-memory-utilization before a worker dies of it.",
            ),
            ("memory_total_bytes", "Memory of this GPU. When it is high, do this: nothing."),
            (
                "power_watts",
                "Power that this GPU draws. When it is high, do this: nothing; at the cap it runs slower, see to "
                "cooling or raise the cap.",
            ),
        )
    )


GPU = GpuMetrics()
REGISTRY.register(GPU)
