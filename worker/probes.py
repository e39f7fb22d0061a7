"""The metrics port of one worker, from before its engine starts: counts for Prometheus, and what its probes say."""

from collections.abc import Mapping, Sequence

from common.broker import redis_url
from common.exposition import serve
from common.log import Event, get_logger
from common.metrics_address import address_for
from common.settings import Settings
from worker.ending import Ending
from worker.gpu_metrics import GPU, Device
from worker.metrics import ENGINE_RESTARTS
from worker.outage import Outage
from worker.watchdog import Watchdog

log = get_logger(__name__)


class Probes:
    """What `/healthz` and `/readyz` of this worker say."""

    def __init__(self, ending: Ending, outage: Outage) -> None:
        self._ending = ending
        self._outage = outage
        self._watchdog: Watchdog | None = None

    def consuming(self, watchdog: Watchdog) -> None:
        """The engine is up and work is taken from now on; `watchdog` knows how it goes."""
        self._watchdog = watchdog

    def is_healthy(self) -> bool:
        """Whether it gets on; an engine that starts takes its time."""
        return self._watchdog is None or self._watchdog.is_alive()

    def is_ready(self) -> bool:
        """Whether it takes work: the engine is up, Redis there, and nobody has told it to leave."""
        return self._watchdog is not None and not self._ending.is_leaving and self._outage.lasted_s() == 0


def open_port(settings: Settings, probes: Probes, *, gpus: Sequence[Device], restarts: Mapping[str, int]) -> str:
    """Serve this worker's metrics; returns where Prometheus finds them, "" where `settings` want none.

    Raises `RefusedError` when the port is taken.
    """
    for cause, count in restarts.items():
        ENGINE_RESTARTS.labels(cause).inc(count)
    if settings.metrics_port is None:
        return ""
    GPU.watch(gpus)
    host = settings.metrics_host
    port = serve(settings.metrics_port, host=host, healthy=probes.is_healthy, ready=probes.is_ready)
    log.info(Event.METRICS_SERVED, host=host, port=port)
    return address_for(host, port, redis_url=redis_url(settings))
