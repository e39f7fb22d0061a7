"""Results of which some fail, made up by the worker of `tests.collecting`, and what a rerun must leave of a job."""

from collections.abc import Callable, Collection

import orjson

from common.claim_types import Publication
from common.errors import ErrorKind
from common.wire import MicroBatch, Request, Result, pack_results
from tests.collecting import FakeEngineWorker

Publish = Callable[[FakeEngineWorker, str, MicroBatch, str, int], None]


def failing(ids: Collection[str], *, kind: ErrorKind = ErrorKind.OVERLOADED) -> Publish:
    """Publish all of a micro-batch, with a result of `kind` for each of `ids`; each says its round and its tokens."""

    def publish(worker: FakeEngineWorker, job: str, batch: MicroBatch, token: str, got: int) -> None:
        missing = [i for i in range(len(batch.requests)) if not got >> i & 1]
        for i in missing:
            result = result_of(job, batch, batch.requests[i], kind if batch.requests[i].custom_id in ids else None)
            worker.claims.publish(job, [Publication(batch.mb, token, 1 << i, pack_results([result]))])

    return publish


def result_of(job: str, batch: MicroBatch, request: Request, kind: ErrorKind | None) -> Result:
    """A result of `request`, good where there is no `kind`; lines of a later round are longer."""
    usage = {"prompt_tokens": 10, "completion_tokens": 5 + request.round}
    body = {"text": f"round {request.round}" * (1 + request.round), "usage": usage}
    status = 200 if kind is None else kind.status
    line = {
        "id": f"{job}-{request.seq}",
        "custom_id": request.custom_id,
        "line": request.line,
        "response": {"status_code": status, "request_id": None, "body": body if kind is None else {"error": {}}},
        "error": None if kind is None else {"code": kind.value, "message": ""},
        "meta": {"model": batch.model},
    }
    tokens = (0, 0) if kind else (10, 5 + request.round)
    return Result(request.seq, request.round, status, kind.value if kind else "", 1, *tokens, orjson.dumps(line))
