"""The rules one input line must keep to become a request; whatever they do not name is the engine's to judge.

Called by `reader` for each line, before any engine exists. Strict JSON (RFC 8259): no NaN or Infinity, also not by
overflow (`1e999`), no lone surrogate, no raw control character, nothing after the value, at most 200 levels. Where a
key stands twice in one object, the last one counts, as in other JSON parsers. Integers of any size stay exact.
"""

import json
import re
from math import isinf
from typing import NamedTuple, cast

from pydantic_core import from_json

from common.errors import ErrorKind
from common.wire import ENDPOINTS

CHAT = "/v1/chat/completions"
SIMPLE_URLS = {"messages": CHAT, "prompt": "/v1/completions", "input": "/v1/embeddings"}
"""The field that tells what a simple line asks for, and the endpoint it goes to."""
ENVELOPE = frozenset(("method", "url", "body"))
"""A line with any of these is an OpenAI batch line."""

_OBJECTS = {dict}
_GENERATING = frozenset({CHAT, "/v1/completions", "/v1/responses"})
_OUTPUT_LIMITS = ("max_completion_tokens", "max_tokens", "max_output_tokens")
_UNSTATED_OUTPUT_TOKENS = 256
_MOST_OUTPUT_TOKENS = 1 << 20

_PARSER_PLACE = re.compile(r"at line 1 column (\d+)$")
_FIRST_ID = re.compile(rb'\s*\{\s*(?:"[^"\\]*"\s*:\s*"[^"\\]*"\s*,\s*)*"custom_id"\s*:\s*("(?:[^"\\\x00-\x1f]|\\.)+")')
_ID_KEY = re.compile(rb'"custom_id"\s*:')


class LineError(Exception):
    """Why a line cannot become a request: the kind of its result, and what its author should do."""

    def __init__(self, kind: ErrorKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


class Checked(NamedTuple):
    """A line that keeps the rules."""

    custom_id: str
    url: str
    body: dict[str, object]
    simple: bool


def parse_line(content: bytes) -> object:
    """The JSON value of a line. Raises `LineError` (`invalid_json`); numbers that overflow are found by `is_finite`."""
    try:
        return cast(object, from_json(content, allow_inf_nan=False))
    except ValueError as error:
        reason = _PARSER_PLACE.sub(r"at byte \1 of the line", str(error))
        if "hex escape" in reason:
            reason += " (a \\uD800 to \\uDFFF escape must be one half of a pair)"
        raise LineError(ErrorKind.INVALID_JSON, f"not valid JSON: {reason}") from None


def check_line(value: object) -> Checked:
    """The request that the JSON value of a line asks for. Raises `LineError` naming the field at fault."""
    if type(value) is not dict:
        raise _invalid(f"the line must be a JSON object, not {_json_type(value)}")
    custom_id = value.get("custom_id")
    if type(custom_id) is not str or not custom_id:
        raise _invalid(_wrong(value, "custom_id", "a non-empty string, different on each line"))
    if not value.keys().isdisjoint(ENVELOPE):
        url, body, simple = *_check_envelope(value), False
    else:
        url, body, simple = *_check_simple(value), True
    _check_body(url, body)
    return Checked(custom_id, url, body, simple)


def _check_envelope(value: dict[str, object]) -> tuple[str, dict[str, object]]:
    if value.get("method") != "POST":
        raise _invalid(_wrong(value, "method", 'exactly "POST"'))
    url = value.get("url")
    if type(url) is not str or url not in ENDPOINTS:
        raise _invalid(_wrong(value, "url", "exactly one of " + ", ".join(sorted(ENDPOINTS))))
    body = value.get("body")
    if type(body) is not dict:
        raise _invalid(_wrong(value, "body", "an object, the request to send to url"))
    return url, body


def _check_simple(value: dict[str, object]) -> tuple[str, dict[str, object]]:
    asked = [name for name in SIMPLE_URLS if name in value]
    if len(asked) != 1:
        found = " and ".join(asked) if asked else "none of them"
        raise _invalid(
            "the line must have either method, url and body, or exactly one of messages, prompt and input;"
            f" it has {found}"
        )
    return SIMPLE_URLS[asked[0]], {name: field for name, field in value.items() if name != "custom_id"}


def _check_body(url: str, body: dict[str, object]) -> None:
    if "model" in body and (type(body["model"]) is not str or not body["model"]):
        raise _invalid(_wrong(body, "model", "a non-empty string, or absent where the job has one model"))
    if url == CHAT:
        messages = body.get("messages")
        if type(messages) is not list or not messages or set(map(type, messages)) != _OBJECTS:
            raise _invalid(_wrong(body, "messages", "a non-empty list of objects"))
    stream = body.get("stream")
    if stream is not None and stream is not False:
        raise _invalid("stream must be false or absent: a result is one whole answer")


def is_finite(value: object) -> bool:
    """Whether every number in a JSON value is finite; the parser makes infinity of a number like `1e999`."""
    stack = [value]
    while stack:
        item = stack.pop()
        if type(item) is float and isinf(item):
            return False
        if type(item) is dict:
            stack.extend(item.values())
        elif type(item) is list:
            stack.extend(item)
    return True


def recover_custom_id(content: bytes) -> str | None:
    """The `custom_id` of a line that is not strict JSON, where it can be read without doubt; else None.

    Either a lenient parser reads the whole line (NaN, lone surrogates or bytes that are not UTF-8 elsewhere in it), or
    the line names `custom_id` exactly once, at its top level with nothing but plain text fields before it.
    """
    try:
        value = json.loads(content.decode("utf-8", "surrogateescape"), parse_int=float)
    except (ValueError, RecursionError):
        found = _FIRST_ID.match(content)
        if not found or len(_ID_KEY.findall(content)) != 1:
            return None
        try:
            value = {"custom_id": from_json(found.group(1))}
        except ValueError:
            return None
    custom_id = value.get("custom_id") if isinstance(value, dict) else None
    return custom_id if type(custom_id) is str and custom_id and is_encodable(custom_id) else None


def is_encodable(text: str) -> bool:
    """Whether `text` holds no lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def estimate_tokens(url: str, body: dict[str, object], encoded: bytes) -> int:
    """About how many tokens a request costs, prompt and answer: for planning only.

    A quarter token for an ASCII character and one for any other, over the whole encoded body; then the answer's limit,
    or 256 where it states none, for each of its choices.
    """
    wide = 0 if encoded.isascii() else (len(encoded) - len(encoded.decode())) // 2
    prompt = (len(encoded) - 3 * wide) // 4 + wide
    return max(1, prompt + answer_limit(url, body))


def answer_limit(url: str, body: dict[str, object]) -> int:
    """The most tokens that all answers to a request may have together, 256 each where it does not say; 0: no answer."""
    if url not in _GENERATING:
        return 0
    answer = _UNSTATED_OUTPUT_TOKENS
    for name in _OUTPUT_LIMITS:
        limit = body.get(name)
        if type(limit) is int:
            answer = limit
            break
    choices = body.get("n")
    if type(choices) is int and choices > 1:
        answer *= choices
    return min(max(answer, 0), _MOST_OUTPUT_TOKENS)


def _invalid(message: str) -> LineError:
    return LineError(ErrorKind.INVALID_REQUEST, message)


def _wrong(holder: dict[str, object], name: str, wanted: str) -> str:
    if name not in holder:
        return f"{name} is missing: it must be {wanted}"
    found = holder[name]
    what = _json_type(found)
    if type(found) in (str, list) and not found:
        what = f"an empty {what.removeprefix('a ')}"
    elif type(found) is str:
        what = "this string"
    elif type(found) is list:
        what = "this list"
    return f"{name} must be {wanted}; {what} is not"


def _json_type(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    return "a string" if isinstance(value, str) else "a list" if isinstance(value, list) else "an object"
