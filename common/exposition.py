"""The metrics port of a worker or a collector, beside a line's way: its counts, is it alive, is it ready.

`/metrics` gives every metric of this process as Prometheus text, `/healthz` and `/readyz` answer 200 or 503, `/targets`
what Prometheus is to scrape, where this process knows it. The metrics are declared in `worker/metrics.py`,
`worker/gpu_metrics.py`, `producer/metrics.py` and `common/host_metrics.py`; the labels they share stand here.
"""

import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import prometheus_client
from prometheus_client import REGISTRY
from prometheus_client.exposition import choose_encoder

from common.errors import ErrorKind, RefusedError

OK = "ok"
OUTCOMES = (OK, *(kind.value for kind in ErrorKind))
"""The closed set of label `outcome`: a good result, or why it is not one."""

SLOW_CLIENT_S = 10.0
PLAIN = "text/plain; charset=utf-8"
JSON = "application/json"

ScrapeTargets = Callable[[], bytes | None]
"""Gives JSON as Prometheus' HTTP discovery reads it; None: not known just now, so that Prometheus keeps what it has."""


class _MetricsServer(ThreadingHTTPServer):
    """One port; a request each in a thread of its own that never keeps the process alive."""

    daemon_threads = True

    def __init__(
        self, address: tuple[str, int], probes: dict[str, Callable[[], bool]], targets: ScrapeTargets | None
    ) -> None:
        self.probes = probes
        self.targets = targets
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up costs nobody a traceback."""


class _Handler(BaseHTTPRequestHandler):
    timeout = SLOW_CLIENT_S
    server: _MetricsServer

    def do_GET(self) -> None:
        """Answer one GET."""
        path = self.path.partition("?")[0]
        if path == "/metrics":
            encode, content_type = choose_encoder("")  # plain text, which keeps colons: as OpenMetrics vllm:* is vllm_*
            self._answer(200, content_type, encode(REGISTRY))
        elif path in self.server.probes:
            good = self.server.probes[path]()
            self._answer(200 if good else 503, PLAIN, b"ok\n" if good else b"no\n")
        elif path == "/targets" and self.server.targets is not None:
            known = self.server.targets()
            self._answer(200 if known else 503, JSON, known or b"")
        else:
            self._answer(404, PLAIN, b"/metrics /healthz /readyz\n")

    def _answer(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Scrapes are not worth a log line."""


def serve(
    port: int,
    *,
    host: str,
    healthy: Callable[[], bool],
    ready: Callable[[], bool],
    targets: ScrapeTargets | None = None,
) -> int:
    """Serve this process's metrics from a daemon thread; returns the port bound (`port` 0: any free one).

    `healthy` and `ready` are asked in another thread and must not block; `targets` may, for seconds. Raises
    `RefusedError` when the port is taken.
    """
    from common.host_metrics import export_host  # psutil takes its time, and most processes have no port

    export_host()
    disable_created_series: Callable[[], None] = prometheus_client.disable_created_metrics
    disable_created_series()
    try:
        server = _MetricsServer((host, port), {"/healthz": healthy, "/readyz": ready}, targets)
    except OSError as error:
        raise RefusedError(
            f"the metrics port cannot be opened: {error.strerror or error}",
            where=f"{host}:{port}",
            do="give another metrics port",
        ) from error
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return int(server.server_address[1])
