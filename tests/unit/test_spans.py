"""What a span holds is bounded, whatever its micro-batch's size, and its phases add up to it."""

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from common.errors import ErrorKind
from common.wire import Result
from tests.worker_parts import make_batch
from worker.spans import MOST_REQUEST_EVENTS, SpanTrace

RETRIED = 5


def traced(size: int) -> ReadableSpan:
    """The span of a micro-batch of `size`, some of its requests tried twice."""
    kept = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    batch = make_batch(size)
    trace = SpanTrace(provider.get_tracer("test").start_span("micro_batch"), batch, queue_s=0.5)
    heard = trace.over(lambda position, result: None)
    trace.begun()
    for request in batch.requests[:RETRIED]:
        trace.retried(request, ErrorKind.OVERLOADED, 1, 0.25)
    for position, request in enumerate(batch.requests):
        heard(position, Result(request.seq, 0, 200, "", 1 + (position < RETRIED), 5, 16, b"{}"))
    trace.ran()
    trace.end("published")
    (span,) = kept.get_finished_spans()
    return span


@pytest.mark.parametrize("size", [RETRIED, 32, MOST_REQUEST_EVENTS - RETRIED, MOST_REQUEST_EVENTS, 4_096])
def test_a_span_keeps_its_phases_and_a_bounded_number_of_requests(size: int) -> None:
    span = traced(size)
    names = [event.name for event in span.events]
    shown = min(size + RETRIED, MOST_REQUEST_EVENTS)
    assert (names[:2], names[-1], len(names)) == (["claimed", "first_attempt"], "run_ended", shown + 3)
    assert span.attributes is not None
    facts = dict(span.attributes)
    assert facts["events_left_out"] == size + RETRIED - shown
    assert (facts["results"], facts["retries"], facts["completion_tokens"]) == (size, RETRIED, 16 * size)


def test_the_wait_between_attempts_is_told_apart_from_the_engine() -> None:
    answered = [event.attributes or {} for event in traced(32).events if event.name == "request_answered"]
    assert [facts["retry_wait_s"] for facts in answered] == [0.25] * RETRIED + [0.0] * (32 - RETRIED)
