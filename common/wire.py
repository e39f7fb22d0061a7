"""What travels between producer and worker, as frozen models parsed once at the door.

Out: a `MicroBatch` (zstd of msgpack, the `z` field of its Redis hash). Back: `Result`s (zstd of msgpack, one stream
entry). The hint that Celery carries is `[WIRE_VERSION, job, mb, n]`. Bytes from Redis are trusted in nothing: sizes are
bounded before they are unpacked, and what cannot be read raises `WireError`.
"""

import re
import threading
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple, get_args

import msgpack
import zstandard
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from common.errors import WireError

WIRE_VERSION = 1
MAX_UNPACKED_BYTES = 512 * 1024 * 1024
MAX_RESULT_BYTES = 32 * 1024 * 1024
MOST_RETRIES = 20
MOST_PARTS = 1_000_000
"""Parts of one list in what is unpacked: a list that claims more is refused before there is memory for it."""
ENTRY_BYTES = 1024 * 1024
"""A publish is at most this large, one single larger result excepted: 16 MB would hold the server 32 ms."""

Endpoint = Literal[
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/responses",
    "/v1/score",
    "/v1/rerank",
    "/v1/classify",
    "/v1/pooling",
]
ENDPOINTS: frozenset[str] = frozenset(get_args(Endpoint))

_JOB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


def is_job_id(text: str) -> bool:
    """Whether `text` can be a job's id: a folder's name, and part of a Redis key, and never a way out of either."""
    return _JOB_ID.fullmatch(text) is not None


def job_ids(names: Iterable[bytes]) -> list[str]:
    """Those of `names` that are job ids: what else stands among them in Redis is nobody's job."""
    return [name for name in (raw.decode(errors="replace") for raw in names) if is_job_id(name)]


class Request(NamedTuple):
    """One input line on its way to an engine.

    A named tuple, since 32 of them travel in every message and a model each would cost more than the rest of the path;
    `MicroBatch` checks their types at the door.
    """

    seq: int
    """0-based among non-blank lines."""
    round: int
    line: int
    """1-based physical line."""
    custom_id: str
    url: str
    """One of `ENDPOINTS`."""
    body: bytes
    """The JSON body to post, UTF-8, `model` included."""
    original: bytes | None
    """The user's line as JSON where the result is to carry it, else None."""


class Result(NamedTuple):
    """One output line on its way back. `line` is the whole JSON line, UTF-8, without its LF."""

    seq: int
    round: int
    status: int
    code: str
    """`ErrorKind` value, empty when the status is 200."""
    attempts: int
    prompt_tokens: int
    completion_tokens: int
    line: bytes


_RESULT_TYPES = (int, int, int, str, int, int, int, bytes)


class MicroBatch(BaseModel):
    """Requests that travel together; everything a worker needs to run them and to write their whole result lines."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    v: int
    job: str
    mb: int = Field(ge=0)
    model: str
    kind: Literal["normal", "solo"]
    request_timeout_s: float = Field(gt=0, allow_inf_nan=False)
    max_retries: int = Field(ge=0, le=MOST_RETRIES)
    fed_at: float = Field(allow_inf_nan=False)
    """Wall clock (UTC, seconds since the epoch) when it was offered; only for `queue_s` in results."""
    requests: tuple[Request, ...]


class JobInfo(BaseModel):
    """The manifest of a job in Redis (`info.manifest`): what any host may know of it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    v: int
    job: str
    host: str
    directory: str
    input: str
    output: str
    model: str | None
    priority: Literal["high", "normal", "low"]
    created_at: str
    """UTC, ISO 8601."""
    tags: dict[str, str] = {}
    """The user's own."""


class _Zstd(threading.local):
    """Its tables, made once a thread: making them costs as much as packing a micro-batch with them."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=1)
        self.decompressor = zstandard.ZstdDecompressor()


_zstd = _Zstd()


def pack_micro_batch(batch: MicroBatch) -> bytes:
    """`batch` as it stands in Redis."""
    return _zstd.compressor.compress(bytes(msgpack.packb(tuple(batch.__dict__.values()))))


def unpack_micro_batch(blob: bytes) -> MicroBatch:
    """The micro-batch in `blob`. Raises `WireError`: unreadable, too large, or of another wire version."""
    fields = _unpack(blob)
    if not isinstance(fields, list) or not fields or fields[0] != WIRE_VERSION:
        raise WireError("a micro-batch of another wire version", do="upgrade the older side")
    try:
        named: dict[str, Any] = dict(zip(MicroBatch.model_fields, fields, strict=True))
        named["requests"] = tuple(Request(*request) for request in named["requests"])
        batch = MicroBatch(**named)
    except (TypeError, ValueError, ValidationError) as error:
        raise WireError(f"a micro-batch that cannot be read: {type(error).__name__}") from error
    if any(request.url not in ENDPOINTS for request in batch.requests):
        raise WireError("a request of no known endpoint")
    return batch


def pack_results(results: list[Result]) -> bytes:
    """`results` as one stream entry's blob."""
    return _zstd.compressor.compress(bytes(msgpack.packb((WIRE_VERSION, results))))


def unpack_results(blob: bytes) -> list[Result]:
    """The results in a stream entry's blob. Raises `WireError`."""
    fields = _unpack(blob)
    if not isinstance(fields, list) or len(fields) != 2 or fields[0] != WIRE_VERSION:
        raise WireError("results of another wire version", do="upgrade the older side")
    try:
        results = [Result._make(row) for row in fields[1]]
    except TypeError as error:
        raise WireError("results that cannot be read") from error
    if any(tuple(map(type, result)) != _RESULT_TYPES for result in results):
        raise WireError("results with fields of the wrong type")
    return results


def _unpack(blob: bytes) -> object:
    try:
        size = zstandard.frame_content_size(blob)
        if not 0 <= size <= MAX_UNPACKED_BYTES:
            raise WireError(f"a payload of {size} bytes unpacked", do=f"at most {MAX_UNPACKED_BYTES}")
        raw = _zstd.decompressor.decompress(blob, max_output_size=MAX_UNPACKED_BYTES)
        return msgpack.unpackb(raw, max_array_len=MOST_PARTS, max_map_len=0, max_ext_len=0)
    except (zstandard.ZstdError, ValueError, msgpack.UnpackException, MemoryError, RecursionError) as error:
        raise WireError(f"a payload that cannot be unpacked: {type(error).__name__}") from error
