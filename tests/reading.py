"""Input lines for tests: made by hand, read by the real reader, for a job with the one model `test-model`."""

import io
import json

from common.errors import ErrorKind
from producer.reader import BlankLine, InputLine, RejectedLine, read_lines

Line = InputLine | RejectedLine | BlankLine
MESSAGES = [{"role": "user", "content": "hi"}]


def choose(model: str | None) -> str | tuple[ErrorKind, str]:
    """A job with the one model `test-model`."""
    if model in (None, "test-model"):
        return "test-model"
    return ErrorKind.MODEL_NOT_FOUND, f"no worker serves {model}"


def read(content: bytes, *, include_request: bool = False, max_line_bytes: int = 100_000) -> list[Line]:
    """Every line of `content`."""
    return list(
        read_lines(
            io.BytesIO(content), choose_model=choose, include_request=include_request, max_line_bytes=max_line_bytes
        )
    )


def read_one(content: bytes, *, include_request: bool = False) -> Line:
    """The one line of `content`."""
    (line,) = read(content, include_request=include_request)
    return line


def request(content: bytes, *, include_request: bool = False) -> InputLine:
    """The request that the one line of `content` becomes."""
    line = read_one(content, include_request=include_request)
    assert isinstance(line, InputLine), line
    return line


def rejection(content: bytes, *, include_request: bool = False) -> RejectedLine:
    """Why the one line of `content` is rejected."""
    line = read_one(content, include_request=include_request)
    assert isinstance(line, RejectedLine), line
    return line


def chat(custom_id: object = "a", **changes: object) -> bytes:
    """An OpenAI batch line; `changes` go into its body."""
    body = {"model": "test-model", "messages": MESSAGES, **changes}
    line = {"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", "body": body}
    return json.dumps(line, ensure_ascii=False).encode()


def body_of(text: str) -> bytes:
    """An OpenAI batch line of completions whose body is the JSON `text`."""
    return b'{"custom_id":"a","method":"POST","url":"/v1/completions","body":' + text.encode() + b"}"
