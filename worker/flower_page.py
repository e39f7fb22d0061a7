"""Flower on the fleet, by one command: micro-batches as they pass the workers, beside a line's way.

A row is one hint, shown as `job=... mb=17 n=32`, its result as `results=32 errors=0 tokens=512`: no prompt and no
answer ever reaches it. While Flower runs, workers send events; when it ends, they fall silent by themselves.
"""

import importlib.util
import ipaddress
from collections.abc import Sequence

from common.broker import make_app, redis_url
from common.errors import RefusedError
from common.log import redact
from common.settings import Settings

PORT = 5555
LOOPBACK = "127.0.0.1"
MAX_TASKS = 10_000
"""About 5 KB each; Flower's own default of 100,000 would grow to half a gigabyte."""
OFFLINE_WORKERS_S = 120
"""A worker's name ends with its life, so the dead leave the list: long enough after to be seen."""
COLUMNS = "args,state,result,received,runtime,worker,uuid"
READ_ONLY_FLAGS = (
    "--read_only",
    f"--max_tasks={MAX_TASKS}",
    f"--purge_offline_workers={OFFLINE_WORKERS_S}",
    f"--tasks_columns={COLUMNS}",
)


def run_flower(
    settings: Settings,
    *,
    port: int = PORT,
    host: str = LOOPBACK,
    basic_auth: str | None = None,
    flags: Sequence[str] = (),
) -> None:
    """Serve Flower until it is stopped; `flags` are Flower's own and come last. Blocks.

    Raises `RefusedError`: Flower is not installed, the port is taken, or others could reach it without a login.
    """
    if importlib.util.find_spec("flower") is None:
        raise RefusedError("Flower is not installed", do="pip install 'bakehouse[monitor]'")
    if basic_auth is None and not _is_loopback(host):
        raise RefusedError(
            "Flower would be open to everybody who reaches this address",
            where=host,
            do="give --basic-auth USER:PASSWORD, or leave it on 127.0.0.1",
        )
    if basic_auth is not None and not all(basic_auth.partition(":")):
        raise RefusedError("--basic-auth is not USER:PASSWORD")
    login = [] if basic_auth is None else [f"--basic_auth={basic_auth}"]
    where = [f"--address={host}", f"--port={port}"]
    _close_metrics()
    try:
        make_app(settings).start(["flower", *where, *READ_ONLY_FLAGS, *login, *flags])
    except OSError as error:
        raise RefusedError(
            f"Flower cannot start: {error.strerror or error}",
            where=f"{host}:{port} on {redact(redis_url(settings))}",
            do="give another --port",
        ) from error


def _close_metrics() -> None:
    """Let Flower's metrics ask for the login too: it leaves them open to everybody (flower#1342)."""
    from flower.views.monitor import Metrics
    from tornado.web import authenticated

    Metrics.get = authenticated(Metrics.get)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
