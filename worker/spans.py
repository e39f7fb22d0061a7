"""Spans by OpenTelemetry: `micro_batch`, from the moment it was fed to the end of its hold, with its requests' phases.

Imported only where spans are asked for (`worker.tracing`). Numbers and ids alone, never a text. Both what a span holds
and how many wait to be sent are bounded: a collector of spans that is away costs spans and nothing else.
"""

import os
import threading
import time

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Tracer

from common.errors import ErrorKind
from common.wire import MicroBatch, Request, Result
from worker.result_writer import WorkerIdentity
from worker.tracing import OnResult, Trace, Tracing

SERVICE = "bakehouse-worker"
MOST_REQUEST_EVENTS = 100
"""Of one span; OpenTelemetry keeps 128 events a span and drops the oldest."""
MOST_WAITING = 256
"""Spans that wait to be sent, at about 1 KB an event; OTEL_BSP_MAX_QUEUE_SIZE goes before it."""
AT_ONCE = 64
"""Spans in one call: a busy worker's queue is emptied in time; OTEL_BSP_MAX_EXPORT_BATCH_SIZE goes before it."""
CLOSE_S = 2.0
"""How long a worker that ends waits for its last spans to be sent."""


class SpanTracing(Tracing):
    """The spans of one worker."""

    def __init__(self, identity: WorkerIdentity) -> None:
        self._identity = identity
        given = OTELResourceDetector().detect().attributes
        names = {"service.name": SERVICE, "service.instance.id": identity.incarnation}
        self._provider = TracerProvider(resource=Resource.create({**names, **given}), shutdown_on_exit=False)
        self._provider.add_span_processor(
            BatchSpanProcessor(
                OTLPSpanExporter(),
                max_queue_size=_unless_given("OTEL_BSP_MAX_QUEUE_SIZE", MOST_WAITING),
                max_export_batch_size=_unless_given("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", AT_ONCE),
            )
        )
        self._tracer: Tracer = self._provider.get_tracer("bakehouse")

    def begin(self, batch: MicroBatch, *, dlv: int) -> Trace:
        """A span that began when `batch` was fed, by its collector's clock."""
        fed_ns = min(int(batch.fed_at * 1e9), time.time_ns())
        attributes: dict[str, str | int] = {
            "job": batch.job,
            "mb": batch.mb,
            "n": len(batch.requests),
            "kind": batch.kind,
            "delivery": dlv,
            "model": batch.model,
            "engine": self._identity.facts.name,
            "worker": self._identity.incarnation,
        }
        span = self._tracer.start_span(
            "micro_batch", Context(), kind=SpanKind.CONSUMER, attributes=attributes, start_time=fed_ns
        )
        return SpanTrace(span, batch, queue_s=(time.time_ns() - fed_ns) / 1e9)

    def close(self) -> None:
        """Send what waits; what a collector of spans does not take in time is lost."""
        closing = threading.Thread(target=self._provider.shutdown, name="spans-closing", daemon=True)
        closing.start()
        closing.join(CLOSE_S)


class SpanTrace(Trace):
    """One span. Told from the loop's thread while requests run, before and after from the one that waits for them."""

    def __init__(self, span: Span, batch: MicroBatch, *, queue_s: float) -> None:
        self._span = span
        self._requests = batch.requests
        self._claimed = self._begun = time.monotonic()
        self._ended: float | None = None
        self._waited_s: dict[int, float] = {}
        self._events = self._errors = self._retries = self._results = 0
        self._tokens = [0, 0]
        span.set_attribute("queue_s", round(queue_s, 6))
        span.add_event("claimed")

    def over(self, on_result: OnResult) -> OnResult:
        """`on_result`, then one event with how long that request was in the engine, and waited between attempts."""

        def heard(position: int, result: Result) -> None:
            on_result(position, result)
            self._answered(result)

        return heard

    def begun(self) -> None:
        """The first attempt of each request."""
        self._begun = time.monotonic()
        self._span.add_event("first_attempt")

    def retried(self, request: Request, kind: ErrorKind, attempt: int, wait_s: float) -> None:
        """One event a wait."""
        self._retries += 1
        self._waited_s[request.seq] = self._waited_s.get(request.seq, 0.0) + wait_s
        self._tell("request_retried", seq=request.seq, attempt=attempt, error=kind.value, wait_s=round(wait_s, 6))

    def ran(self) -> None:
        """The last answer is there."""
        self._ended = time.monotonic()
        self._span.add_event("run_ended")

    def end(self, outcome: str) -> None:
        """End the span: how long each phase took, and what came of it."""
        now = time.monotonic()
        ended = now if self._ended is None else self._ended
        self._span.set_attributes(
            {
                "outcome": outcome,
                "start_s": round(self._begun - self._claimed, 6),
                "engine_s": round(ended - self._begun, 6),
                "publish_s": round(now - ended, 6),
                "results": self._results,
                "errors": self._errors,
                "retries": self._retries,
                "prompt_tokens": self._tokens[0],
                "completion_tokens": self._tokens[1],
                "events_left_out": max(0, self._events - MOST_REQUEST_EVENTS),
            }
        )
        self._span.end()

    def _answered(self, result: Result) -> None:
        self._results += 1
        self._errors += result.code != ""
        self._tokens[0] += result.prompt_tokens
        self._tokens[1] += result.completion_tokens
        wait_s = self._waited_s.pop(result.seq, 0.0)
        self._tell(
            "request_answered",
            seq=result.seq,
            status=result.status,
            attempts=result.attempts,
            engine_s=round(time.monotonic() - self._begun - wait_s, 6),
            retry_wait_s=round(wait_s, 6),
            completion_tokens=result.completion_tokens,
        )

    def _tell(self, name: str, **facts: str | int | float) -> None:
        self._events += 1
        if self._events <= MOST_REQUEST_EVENTS:
            self._span.add_event(name, facts)


def _unless_given(variable: str, default: int) -> int | None:
    """`default`, or None where the user's own environment says how many."""
    return None if os.environ.get(variable) else default
