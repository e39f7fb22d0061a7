"""A collector of spans for tests: takes OTLP over HTTP on loopback, as OpenTelemetry's own collectors do."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class SpanCollector(ThreadingHTTPServer):
    """All that it was sent, raw and read."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.raw: list[bytes] = []

    def spans(self) -> list[Span]:
        """Every span, in the order they came in."""
        read = [ExportTraceServiceRequest.FromString(body) for body in self.raw]
        return [
            span
            for sent in read
            for resource in sent.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def resources(self) -> list[dict[str, Any]]:
        """Who sent, a call each."""
        read = [ExportTraceServiceRequest.FromString(body) for body in self.raw]
        return [facts(resource.resource.attributes) for sent in read for resource in sent.resource_spans]


def facts(attributes: Any) -> dict[str, Any]:
    """The attributes of a span, an event or a resource."""
    return {pair.key: _value(pair.value) for pair in attributes if isinstance(pair, KeyValue)}


@contextmanager
def span_collector() -> Iterator[SpanCollector]:
    """One that listens, until the end."""
    collector = SpanCollector()
    threading.Thread(target=collector.serve_forever, daemon=True).start()
    try:
        yield collector
    finally:
        collector.shutdown()
        collector.server_close()


def _value(value: AnyValue) -> Any:
    return getattr(value, str(value.WhichOneof("value")))


class _Handler(BaseHTTPRequestHandler):
    server: SpanCollector

    def do_POST(self) -> None:
        self.server.raw.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200 if self.path == "/v1/traces" else 404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Tests say what matters."""
