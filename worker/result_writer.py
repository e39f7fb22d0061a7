"""A request's last verdict becomes its result: the whole output line with its `meta`, between runner and publish."""

import hashlib
from dataclasses import dataclass
from datetime import datetime

import orjson

from common.errors import ErrorKind
from common.result_line import Meta, MetaTemplate, build_result_line, to_json
from common.wire import MAX_RESULT_BYTES, MicroBatch, Request, Result
from worker.engines.base import EngineFacts
from worker.metrics import REQUEST_SECONDS
from worker.request_log import RequestLog
from worker.verdict import Verdict, failed


@dataclass(frozen=True, slots=True)
class WorkerIdentity:
    """Who answers: stands in every result's `meta`."""

    incarnation: str
    facts: EngineFacts


class ResultWriter:
    """Writes the results of one delivery of one micro-batch."""

    def __init__(
        self, batch: MicroBatch, identity: WorkerIdentity, *, dlv: int, queue_s: float, started_at: datetime
    ) -> None:
        self._batch = batch
        self._dlv = dlv
        self._meta = MetaTemplate(
            Meta(
                model=batch.model,
                model_revision=identity.facts.revision,
                model_digest=identity.facts.digest,
                engine=identity.facts.name,
                deliveries=dlv,
                worker=identity.incarnation,
                started_at=started_at,
                queue_s=round(queue_s, 6),
            )
        )
        self._log = RequestLog(batch.job, started_at=to_json(started_at))

    def write(
        self, request: Request, verdict: Verdict, *, attempts: int, latency_s: float, finished_at: bytes
    ) -> Result:
        """The result; `latency_s` goes from the first attempt to the last one's end, `finished_at` is JSON."""
        meta = self._meta.render(
            request_sha256=b'"%b"' % request_sha256(request.url, request.body).encode(),
            attempts=attempts,
            finished_at=finished_at,
            latency_s=round(latency_s, 6),
        )
        line = self._line(request, verdict, meta, attempts)
        if len(line) > MAX_RESULT_BYTES:
            verdict = failed(ErrorKind.RESPONSE_TOO_LARGE, f"the result line has {len(line)} bytes")
            line = self._line(request, verdict, meta, attempts)
        kind = verdict.kind
        REQUEST_SECONDS.observe(latency_s)
        self._log.note(request, status=verdict.status, kind=kind, attempts=attempts, finished_at=finished_at)
        return Result(
            request.seq,
            request.round,
            verdict.status,
            "" if kind is None else kind.value,
            attempts,
            verdict.prompt_tokens,
            verdict.completion_tokens,
            line,
        )

    def close(self) -> None:
        """Every result of this delivery is written."""
        self._log.flush()

    def _line(self, request: Request, verdict: Verdict, meta: bytes, attempts: int) -> bytes:
        job = self._batch.job
        return build_result_line(
            job=job,
            seq=request.seq,
            custom_id=request.custom_id,
            line=request.line,
            status=verdict.status,
            request_id=f"{job}-{request.seq}-{self._dlv}-{attempts}",
            body=verdict.body,
            kind=verdict.kind,
            message=verdict.message,
            meta=meta,
            original=request.original,
        )


def request_sha256(url: str, body: bytes) -> str:
    """Hex digest over the canonical JSON (sorted keys, no blanks) of `url` and `body`: equal calls, equal digests."""
    try:
        canonical = orjson.dumps({"body": orjson.loads(body), "url": url}, option=orjson.OPT_SORT_KEYS)
    except orjson.JSONDecodeError:
        canonical = url.encode() + b"\n" + body
    return hashlib.sha256(canonical).hexdigest()
