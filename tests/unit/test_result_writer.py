"""How a verdict becomes a result: equal calls have equal digests, and no line is longer than the wire carries."""

from datetime import UTC, datetime

import orjson
import pytest

from common.wire import MAX_RESULT_BYTES
from tests.scripted_engine import FACTS, make_batch
from worker.result_writer import ResultWriter, WorkerIdentity, request_sha256
from worker.verdict import Verdict


def test_equal_calls_have_equal_digests() -> None:
    digest = request_sha256("/u", b'{"a":1,"b":{"c":2,"d":3}}')
    assert request_sha256("/u", b' {"b": {"d": 3, "c": 2}, "a": 1}') == digest
    assert request_sha256("/v", b'{"a":1,"b":{"c":2,"d":3}}') != digest
    assert request_sha256("/u", b'{"a":2,"b":{"c":2,"d":3}}') != digest


@pytest.mark.parametrize("excess", [-2000, 0])
def test_a_line_that_is_too_long_becomes_a_failure(excess: int) -> None:
    batch = make_batch(1)
    writer = ResultWriter(batch, WorkerIdentity("w", FACTS), dlv=1, queue_s=0.5, started_at=datetime.now(UTC))
    body = b'"' + b"x" * (MAX_RESULT_BYTES + excess) + b'"'
    result = writer.write(batch.requests[0], Verdict(200, None, body), attempts=1, latency_s=1.0, finished_at=b'"now"')
    if excess < 0:
        assert result.status == 200
        return
    assert result[2:4] == (500, "response_too_large")
    line = orjson.loads(result.line)
    assert line["error"]["code"] == "response_too_large"
    assert line["response"]["body"]["error"]["code"] == 500
