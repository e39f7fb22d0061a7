"""The metrics port of a command that owns jobs, open for as long as it runs."""

from common.exposition import serve
from common.log import Event, get_logger
from common.settings import Settings

log = get_logger(__name__)


def open_metrics_port(settings: Settings) -> None:
    """Serve this process's metrics where `settings` ask for it. Raises `RefusedError` when the port is taken."""
    if settings.metrics_port is None:
        return
    port = serve(settings.metrics_port, host=settings.metrics_host, healthy=lambda: True, ready=lambda: True)
    log.info(Event.METRICS_SERVED, host=settings.metrics_host, port=port)
