"""Requests that are given up: the collector writes their results itself, where no worker can. Journaled as any others.

Their lines are read again from the input, since nothing of a payload is kept on this side.
"""

from collections.abc import Mapping

from common.errors import ErrorKind
from common.result_line import Meta, build_result_line
from common.wire import Result
from producer.job import Job
from producer.reader import InputLine
from producer.window import OpenMicroBatch


def give_up(job: Job, batch: OpenMicroBatch, reasons: Mapping[int, str], *, kind: ErrorKind) -> list[Result]:
    """A result of `kind` for each seq of `batch` in `reasons`, with what is said there.

    Raises `RefusedError` when the input has changed since it was fed.
    """
    row = batch.row
    lines = job.payloads.read_again(reasons, job.journal, model=row.model)
    meta = Meta(model=row.model, deliveries=batch.deliveries + 1)
    return [
        give_up_line(job, seq, line, round_=row.round, kind=kind, reason=reason, meta=meta)
        for (seq, reason), line in zip(reasons.items(), lines, strict=True)
    ]


def give_up_line(
    job: Job, seq: int, line: InputLine, *, round_: int, kind: ErrorKind, reason: str, meta: Meta
) -> Result:
    """The result of `kind` for one request, of which `line` is the input line."""
    text = build_result_line(
        job=job.id,
        seq=seq,
        custom_id=line.custom_id,
        line=line.line,
        status=kind.status,
        request_id=None,
        body=None,
        kind=kind,
        message=reason,
        meta=meta,
        original=line.original,
    )
    return Result(seq, round_, kind.status, kind.value, 0, 0, 0, text)
