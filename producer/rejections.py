"""A rejected line -> its whole result line, the same shape as a worker's: the line's way ends here, with no engine."""

from common.result_line import Meta, build_result_line
from producer.reader import RejectedLine


def rejected_result(job: str, seq: int, rejected: RejectedLine) -> bytes:
    """The result line of `rejected`, without LF; its status is `rejected.kind.status`. No attempt was made."""
    return build_result_line(
        job=job,
        seq=seq,
        custom_id=rejected.custom_id,
        line=rejected.line,
        status=rejected.kind.status,
        request_id=None,
        body=None,
        kind=rejected.kind,
        message=rejected.message,
        meta=Meta(),
        original=rejected.original,
    )
