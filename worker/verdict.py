"""What an engine's answer means: a pure look at status and body, once an attempt, between `engine.post` and the result.

The answer's bytes go into the result line as they are where they are strict JSON; each body is parsed once.
"""

import json
from typing import Any, NamedTuple

import orjson

from common.errors import ErrorKind
from common.result_line import strict, usage_of
from common.wire import MAX_RESULT_BYTES
from worker.engines.base import Answer

_OK = 200
_TOO_MANY_REQUESTS = 429
_UNAVAILABLE = 503
_NOT_FOUND = 404


class Verdict(NamedTuple):
    """One attempt's outcome. `kind` is None exactly when `status` is 200."""

    status: int
    kind: ErrorKind | None
    body: object
    """Strict JSON as bytes, or an object, or None where no engine spoke."""
    message: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cut: bool = False
    """The engine was stopped in the middle: this is no answer at all, whatever its status says."""


def failed(kind: ErrorKind, message: str) -> Verdict:
    """The verdict on an attempt that brought no answer of an engine."""
    return Verdict(kind.status, kind, None, message)


def judge(answer: Answer) -> Verdict:
    """The verdict on `answer`."""
    if len(answer.body) > MAX_RESULT_BYTES:
        return failed(ErrorKind.RESPONSE_TOO_LARGE, f"the answer has {len(answer.body)} bytes")
    body: object = answer.body
    try:
        fields = orjson.loads(answer.body)
    except orjson.JSONDecodeError:
        try:
            body = fields = strict(json.loads(answer.body))
        except (ValueError, RecursionError):
            return failed(ErrorKind.ENGINE_ERROR, f"status {answer.status} with a body that is not JSON")
    if answer.status != _OK:
        kind = _kind(answer.status, fields)
        return Verdict(answer.status, kind, body, _message(fields, answer.status))
    prompt_tokens, completion_tokens = usage_of(fields)
    return Verdict(_OK, None, body, "", prompt_tokens, completion_tokens, _is_cut(fields))


def _kind(status: int, fields: Any) -> ErrorKind:
    if status in (_TOO_MANY_REQUESTS, _UNAVAILABLE):
        return ErrorKind.OVERLOADED
    if not 400 <= status < 500:
        return ErrorKind.ENGINE_ERROR
    error = _error(fields)
    names_model = error.get("param") == "model" or error.get("code") == ErrorKind.MODEL_NOT_FOUND.value
    return ErrorKind.MODEL_NOT_FOUND if status == _NOT_FOUND and names_model else ErrorKind.REJECTED


def _message(fields: Any, status: int) -> str:
    message = _error(fields).get("message")
    return message if isinstance(message, str) else f"the engine answered {status}"


def _error(fields: Any) -> dict[str, Any]:
    error = fields.get("error") if isinstance(fields, dict) else None
    return error if isinstance(error, dict) else {}


def _is_cut(fields: Any) -> bool:
    """Whether any choice ended because the engine was stopped: `/v1/responses` calls it `cancelled`."""
    if not isinstance(fields, dict):
        return False
    if fields.get("object") == "response":
        return fields.get("status") == "cancelled"
    choices = fields.get("choices")
    if not isinstance(choices, list):
        return False
    return any(isinstance(choice, dict) and choice.get("finish_reason") == "abort" for choice in choices)
