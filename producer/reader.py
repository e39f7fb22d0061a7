"""Bytes of the input -> a request, a rejected or a blank line for each physical line: where a line's way starts.

Lines end at LF only; one CR before it and a byte-order mark at the start of the file are dropped; a last line without
LF counts. Blank means nothing but ASCII white space. Each physical line comes with its number and byte range, so that
reading can go on from any line's end. Memory: one line of at most `max_line_bytes`, whatever stands in the file.
"""

from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import NamedTuple, Protocol

from pydantic_core import to_json

from common.errors import ErrorKind
from producer.line_rules import (
    Checked,
    LineError,
    check_line,
    estimate_tokens,
    is_finite,
    parse_line,
    recover_custom_id,
)

ChooseModel = Callable[[str | None], str | tuple[ErrorKind, str]]
"""Model named by a line (None = it names none) -> the model that answers, or why none does."""

_BOM = b"\xef\xbb\xbf"
_SKIP_BYTES = 64 * 1024
_HEAD_BYTES = 4096
_ENVELOPE_FIELDS = 4


class InputLine(NamedTuple):
    """A line that became a request."""

    line: int
    """1-based physical line."""
    offset: int
    length: int
    """Bytes of the physical line with its LF: `offset + length` is where the next one starts."""
    custom_id: str
    url: str
    model: str
    body: bytes
    """Compact JSON, UTF-8, `model` included."""
    original: bytes | None
    """The user's line as JSON where the result is to carry it, else None."""
    tokens: int
    """Estimate of prompt and answer together."""
    id_hash: bytes
    """16 bytes; see `hash_id`."""


class RejectedLine(NamedTuple):
    """A line that cannot become a request: it becomes an error result in its place."""

    line: int
    offset: int
    length: int
    custom_id: str | None
    """None where it cannot be read."""
    kind: ErrorKind
    message: str
    original: bytes | None
    id_hash: bytes | None


class BlankLine(NamedTuple):
    """A line of white space: no result, but it counts in line numbers."""

    line: int
    offset: int
    length: int


class LineStream(Protocol):
    """Where bytes come from."""

    def readline(self, size: int, /) -> bytes:
        """The rest of a line with its LF, at most `size` bytes of it; empty at the end."""


class _Physical(NamedTuple):
    line: int
    offset: int
    length: int
    content: bytes
    too_long: bool


def read_lines(
    stream: LineStream,
    *,
    offset: int = 0,
    line: int = 1,
    choose_model: ChooseModel,
    include_request: bool,
    max_line_bytes: int,
) -> Iterator[InputLine | RejectedLine | BlankLine]:
    """Every physical line from `offset` on, in order; `stream` stands at `offset`, where line `line` starts.

    A simple line always keeps its `original`, an OpenAI batch line with `include_request`.
    """
    for physical in _split(stream, offset=offset, line=line, max_line_bytes=max_line_bytes):
        if physical.too_long:
            yield _too_long(physical, max_line_bytes)
        elif not physical.content or physical.content.isspace():
            yield BlankLine(*physical[:3])
        else:
            yield _read_line(physical, choose_model, include_request)


def hash_id(custom_id: str) -> bytes:
    """16 bytes that stand for a `custom_id`, in the journal and for finding duplicates."""
    return blake2b(custom_id.encode(), digest_size=16).digest()


def _split(stream: LineStream, *, offset: int, line: int, max_line_bytes: int) -> Iterator[_Physical]:
    longest = max_line_bytes + len(_BOM) + len(b"\r\n")
    while raw := stream.readline(longest):
        length = len(raw)
        content = raw.removeprefix(_BOM) if offset == 0 else raw
        if raw.endswith(b"\n"):
            content = content[:-2] if content.endswith(b"\r\n") else content[:-1]
        too_long = len(content) > max_line_bytes
        if too_long:
            blank = content.isspace()
            content = content[:_HEAD_BYTES]
            while not raw.endswith(b"\n") and (raw := stream.readline(_SKIP_BYTES)):
                length += len(raw)
                blank = blank and raw.isspace()
            too_long = not blank
        yield _Physical(line, offset, length, content, too_long)
        offset += length
        line += 1


def _too_long(physical: _Physical, max_line_bytes: int) -> RejectedLine:
    message = f"the line has {physical.length} bytes; the longest allowed is {max_line_bytes} (max_line_bytes)"
    custom_id = recover_custom_id(physical.content)
    return _rejected(physical, LineError(ErrorKind.LINE_TOO_LONG, message), custom_id, None)


def _read_line(physical: _Physical, choose_model: ChooseModel, include_request: bool) -> InputLine | RejectedLine:
    content = physical.content
    try:
        value = parse_line(content)
    except LineError as error:
        return _rejected(physical, error, recover_custom_id(content), None)
    try:
        checked = check_line(value)
        model, body = _with_model(value, checked, choose_model)
    except LineError as error:
        return _reject_value(physical, value, error, include_request)
    custom_id, url, fields, simple = checked
    return InputLine(
        physical.line,
        physical.offset,
        physical.length,
        custom_id,
        url,
        model,
        body,
        content.strip() if simple or include_request else None,
        estimate_tokens(url, fields, body),
        hash_id(custom_id),
    )


def _with_model(value: object, checked: Checked, choose_model: ChooseModel) -> tuple[str, bytes]:
    body = checked.body
    named = body.get("model")
    chosen = choose_model(named if isinstance(named, str) else None)
    if not isinstance(chosen, str):
        raise LineError(*chosen)
    if chosen != named:
        body["model"] = chosen
    encoded = to_json(body)
    has_more = not checked.simple and isinstance(value, dict) and len(value) > _ENVELOPE_FIELDS
    if (b"Infinity" in encoded or has_more) and not is_finite(value):
        raise _overflow()
    return chosen, encoded


def _reject_value(physical: _Physical, value: object, error: LineError, include_request: bool) -> RejectedLine:
    custom_id, simple = None, False
    if isinstance(value, dict):
        named = value.get("custom_id")
        custom_id = named if isinstance(named, str) and named else None
        simple = not value.keys() & {"method", "url", "body"}
    if not is_finite(value):
        return _rejected(physical, _overflow(), custom_id, None)
    return _rejected(physical, error, custom_id, physical.content.strip() if simple or include_request else None)


def _overflow() -> LineError:
    return LineError(ErrorKind.INVALID_JSON, "not valid JSON: a number is too large for a double")


def _rejected(physical: _Physical, error: LineError, custom_id: str | None, original: bytes | None) -> RejectedLine:
    id_hash = hash_id(custom_id) if custom_id else None
    return RejectedLine(*physical[:3], custom_id, error.kind, error.message, original, id_hash)
