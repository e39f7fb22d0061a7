"""The metrics port of a command that owns jobs, and of the one that only tells what there is to scrape."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import redis

from common.broker import make_client, redis_url
from common.exposition import ScrapeTargets, serve
from common.log import Event, get_logger
from common.metrics_address import address_for
from common.settings import Settings
from producer.discovery import as_json, read_scrape_targets
from producer.heartbeat import Heartbeat, Role
from producer.interrupts import Interrupts
from producer.pulse import all_ready, all_well
from producer.redis_metrics import REDIS

ASK_S = 3.0
"""Whoever asks for targets waits no longer than this for Redis."""

TURN_S = 0.2

log = get_logger(__name__)


@contextmanager
def metrics_port(settings: Settings) -> Iterator[None]:
    """While entered, serve this process's metrics where `settings` ask for it, and be found in the Redis they name.

    Raises `RefusedError` when the port is taken.
    """
    if settings.metrics_port is None:
        yield
        return
    url, host = redis_url(settings), settings.metrics_host
    REDIS.watch(settings)
    port = serve(settings.metrics_port, host=host, healthy=all_well, ready=all_ready, targets=targets_in(url))
    log.info(Event.METRICS_SERVED, host=host, port=port)
    with _found(settings, port, role="collector"):
        yield


def targets_in(url: str) -> ScrapeTargets:
    """Asks the Redis at `url` each time."""
    client = make_client(url, socket_timeout_s=ASK_S)

    def ask() -> bytes | None:
        try:
            return as_json(read_scrape_targets(client))
        except redis.RedisError:
            return None

    return ask


def serve_targets(settings: Settings, port: int, *, say: Callable[[str], None]) -> None:
    """Answer Prometheus' discovery, and show it Redis, until interrupted. Blocks; from the main thread only.

    Raises `RefusedError` when the port is taken.
    """
    url, host = redis_url(settings), settings.metrics_host
    ask = targets_in(url)
    REDIS.watch(settings)
    port = serve(port, host=host, healthy=lambda: True, ready=lambda: ask() is not None, targets=ask)
    say(f"targets at http://{host}:{port}/targets; Ctrl-C ends")
    with _found(settings, port, role="targets"), Interrupts() as interrupts, interrupts.watched():
        while not interrupts.count:
            time.sleep(TURN_S)


def _found(settings: Settings, port: int, *, role: Role) -> Heartbeat:
    """While entered, `port` is among the targets."""
    url = redis_url(settings)
    client = make_client(url, socket_timeout_s=min(ASK_S, settings.socket_timeout_s))
    address = address_for(settings.metrics_host, port, redis_url=url)
    return Heartbeat(client, metrics=address, role=role, every_s=settings.presence_s)
