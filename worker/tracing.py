"""One span a micro-batch, beside a line's way: sent by OpenTelemetry where an endpoint for spans is set, else nothing.

The variables are OpenTelemetry's own. Without one of `ENDPOINTS` nothing of it is imported, and what is told here goes
nowhere; `worker.spans` sends it.
"""

import os
from collections.abc import Callable

from common.errors import ErrorKind
from common.log import Event, get_logger, redact
from common.wire import MicroBatch, Request, Result
from worker.result_writer import WorkerIdentity

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")

OnResult = Callable[[int, Result], None]

log = get_logger(__name__)


class Trace:
    """What is told of one micro-batch, from its claim to the end of its hold. This one keeps nothing."""

    def over(self, on_result: OnResult) -> OnResult:
        """`on_result`, and each result told here too."""
        return on_result

    def begun(self) -> None:
        """Its requests go into the engine."""

    def retried(self, request: Request, kind: ErrorKind, attempt: int, wait_s: float) -> None:
        """`attempt` of `request` failed; the next one follows in `wait_s` seconds."""

    def ran(self) -> None:
        """Its run is over; what is finished is now published."""

    def end(self, outcome: str) -> None:
        """It is held no more: `published`, `lost` or `handed_back`."""


class Tracing:
    """Begins a trace for each micro-batch. This one traces nothing."""

    def begin(self, batch: MicroBatch, *, dlv: int) -> Trace:
        """`batch` was claimed just now, as its delivery number `dlv`."""
        return SILENT

    def close(self) -> None:
        """Send what waits; blocks for a few seconds at most."""


SILENT = Trace()


def start_tracing(identity: WorkerIdentity) -> Tracing:
    """Spans of this worker, where they are asked for and can be had; a worker works without them too."""
    endpoint = next((os.environ[name] for name in ENDPOINTS if os.environ.get(name)), None)
    if endpoint is None:
        return Tracing()
    try:
        from worker.spans import SpanTracing
    except ImportError as error:
        reason = f"{error}; install it: pip install 'bakehouse[tracing]'"
        log.warning(Event.TRACING_REFUSED, where=redact(endpoint), reason=reason)
        return Tracing()
    log.info(Event.TRACING_STARTED, where=redact(endpoint))
    return SpanTracing(identity)
