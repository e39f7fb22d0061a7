"""What answers mean: statuses to error kinds, bodies that are no JSON, answers cut short."""

import orjson
import pytest

from common.errors import ErrorKind
from common.wire import MAX_RESULT_BYTES
from worker.engines.base import Answer
from worker.verdict import judge


def error(**fields: object) -> bytes:
    return orjson.dumps({"error": {"message": "no", "type": "T", "param": None, "code": 0, **fields}})


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (200, b"{}", None),
        (400, error(), ErrorKind.REJECTED),
        (404, error(param="model"), ErrorKind.MODEL_NOT_FOUND),
        (404, error(code="model_not_found"), ErrorKind.MODEL_NOT_FOUND),
        (404, error(message="the model does not exist"), ErrorKind.REJECTED),
        (404, b'{"detail":"Not Found"}', ErrorKind.REJECTED),
        (400, error(param="model"), ErrorKind.REJECTED),
        (422, b"[]", ErrorKind.REJECTED),
        (429, error(), ErrorKind.OVERLOADED),
        (503, error(), ErrorKind.OVERLOADED),
        (500, error(), ErrorKind.ENGINE_ERROR),
        (502, b"null", ErrorKind.ENGINE_ERROR),
        (201, b"{}", ErrorKind.ENGINE_ERROR),
    ],
)
def test_status_and_body_make_the_kind(status: int, body: bytes, kind: ErrorKind | None) -> None:
    verdict = judge(Answer(status, body))
    assert verdict.kind is kind
    assert verdict.status == status
    assert verdict.body == body


def test_message_is_the_engines_own() -> None:
    assert judge(Answer(400, error(message="too hot"))).message == "too hot"
    assert judge(Answer(400, b"{}")).message == "the engine answered 400"


def test_no_json_at_all() -> None:
    verdict = judge(Answer(200, b"<html>"))
    assert (verdict.status, verdict.kind) == (500, ErrorKind.ENGINE_ERROR)
    assert judge(Answer(200, b"[" * 100_000)).kind is ErrorKind.ENGINE_ERROR
    assert judge(Answer(200, b'"\xff"')).kind is ErrorKind.ENGINE_ERROR


def test_nan_and_lone_surrogates_are_repaired() -> None:
    verdict = judge(Answer(200, b'{"a": [NaN, -Infinity, 1], "b": "\\ud800", "usage": {"prompt_tokens": 3}}'))
    assert verdict.kind is None
    assert verdict.body == {"a": [None, None, 1], "b": "\ufffd", "usage": {"prompt_tokens": 3}}
    assert verdict.prompt_tokens == 3


def test_too_large() -> None:
    verdict = judge(Answer(200, b'"' + b"x" * MAX_RESULT_BYTES + b'"'))
    assert (verdict.status, verdict.kind) == (500, ErrorKind.RESPONSE_TOO_LARGE)


def test_tokens() -> None:
    chat = judge(Answer(200, b'{"usage": {"prompt_tokens": 3, "completion_tokens": 4}}'))
    assert (chat.prompt_tokens, chat.completion_tokens) == (3, 4)
    responses = judge(Answer(200, b'{"usage": {"input_tokens": 5, "output_tokens": 6}}'))
    assert (responses.prompt_tokens, responses.completion_tokens) == (5, 6)
    embeddings = judge(Answer(200, b'{"usage": {"prompt_tokens": 7, "completion_tokens": null}}'))
    assert (embeddings.prompt_tokens, embeddings.completion_tokens) == (7, 0)


@pytest.mark.parametrize(
    ("body", "cut"),
    [
        (b'{"choices": [{"finish_reason": "stop"}, {"finish_reason": "abort"}]}', True),
        (b'{"choices": [{"finish_reason": "stop"}]}', False),
        (b'{"choices": [{"message": {"content": "abort"}, "finish_reason": "length"}]}', False),
        (b'{"object": "response", "status": "cancelled"}', True),
        (b'{"object": "response", "status": "completed"}', False),
        (b'{"choices": null}', False),
        (b"[]", False),
    ],
)
def test_answers_cut_short(body: bytes, cut: bool) -> None:
    assert judge(Answer(200, body)).cut is cut
