"""One output line as bytes: what a worker builds for each request, and the producer for each line it refuses.

Strict JSON in UTF-8 on one physical line: no NaN, no lone surrogate, no line end inside (docs/wire.md).
"""

import math
from datetime import datetime
from typing import Any, NamedTuple

import orjson

from common.errors import ErrorKind

_MIN_INT, _MAX_INT = -(2**63), 2**64 - 1
_LINE = (
    b'{"id":%b,"custom_id":%b,"line":%d%b,"response":{"status_code":%d,"request_id":%b,"body":%b},"error":%b,"meta":%b}'
)


class Meta(NamedTuple):
    """Where a result comes from; what does not apply is None. Times are aware, in UTC."""

    model: str | None = None
    model_revision: str | None = None
    model_digest: str | None = None
    """Hex digest over all that decides what the model answers."""
    engine: str | None = None
    request_sha256: str | None = None
    """Hex digest over the canonical JSON of url and body."""
    attempts: int | None = None
    deliveries: int | None = None
    worker: str | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    queue_s: float | None = None
    latency_s: float | None = None


class MetaTemplate:
    """The `meta` of all results of one delivery, as JSON: what they share is rendered once."""

    def __init__(self, shared: Meta) -> None:
        """The fields that `render` sets must be None."""
        text = to_json(shared._asdict()).replace(b"%", b"%%")
        for own in (b"request_sha256", b"attempts", b"finished_at", b"latency_s"):
            text = text.replace(b'"%b":null' % own, b'"%b":%%b' % own)  # in no value: quotes are escaped there
        self._format = text

    def render(self, *, request_sha256: bytes, attempts: int, finished_at: bytes, latency_s: float) -> bytes:
        """One result's; `request_sha256` and `finished_at` as JSON."""
        return self._format % (request_sha256, b"%d" % attempts, finished_at, orjson.dumps(latency_s))


def build_result_line(
    *,
    job: str,
    seq: int,
    custom_id: str | None,
    line: int,
    status: int,
    request_id: str | None,
    body: object,
    kind: ErrorKind | None,
    message: str,
    meta: Meta | bytes,
    original: bytes | None,
) -> bytes:
    """The whole result line, without its LF.

    `body`: strict JSON as bytes, or an object; None for a failure: its error object is made here. `kind`: None exactly
    when `status` is 200. `meta`: its fields, or JSON. `original`: the user's line as JSON where the result carries it.
    """
    if body is None and kind is not None:
        body = error_object(kind, message=message, status=status)
    return _LINE % (
        to_json(f"{job}-{seq}"),
        to_json(custom_id),
        line,
        b"" if original is None else b',"request":' + _one_line(original),
        status,
        to_json(request_id),
        _one_line(body) if isinstance(body, bytes) else to_json(body),
        b"null" if kind is None else to_json({"code": kind.value, "message": message}),
        meta if isinstance(meta, bytes) else to_json(meta._asdict()),
    )


def to_json(value: object) -> bytes:
    """`value` as strict JSON; times in UTC end in Z."""
    try:
        return orjson.dumps(value, option=orjson.OPT_UTC_Z)
    except TypeError:
        return orjson.dumps(strict(value), option=orjson.OPT_UTC_Z)


def error_object(kind: ErrorKind, *, message: str, status: int) -> dict[str, Any]:
    """The OpenAI error object for a failure that no engine has put into words."""
    return {"error": {"message": message, "type": kind.value, "param": None, "code": status}}


def usage_of(body: Any) -> tuple[int, int]:
    """(prompt, completion) tokens that an answer counts; `/v1/responses` has names of its own for them."""
    usage = body.get("usage") if isinstance(body, dict) else None
    if not isinstance(usage, dict):
        return 0, 0
    prompt = usage.get("prompt_tokens", usage.get("input_tokens"))
    completion = usage.get("completion_tokens", usage.get("output_tokens"))
    return prompt if isinstance(prompt, int) else 0, completion if isinstance(completion, int) else 0


def strict(value: Any) -> Any:
    """`value` as strict JSON can hold it: NaN and infinities become null, lone surrogates U+FFFD."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int) and not _MIN_INT <= value <= _MAX_INT:
        return _to_float(value)
    if isinstance(value, dict):
        return {strict(key): strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [strict(item) for item in value]
    return value


def _one_line(json: bytes) -> bytes:
    """`json` as it stands: parsing and writing it again would cost more than the rest of the line.

    A line end can stand only between tokens there, where a blank is as good.
    """
    if b"\n" in json or b"\r" in json:
        json = json.replace(b"\r", b" ").replace(b"\n", b" ")
    return json


def _to_float(value: int) -> float | None:
    try:
        return float(value)
    except OverflowError:
        return None
