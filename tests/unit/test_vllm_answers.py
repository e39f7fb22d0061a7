"""Where our answers differ from vLLM's server: grammars, what is not implemented, streams and two paths."""

import asyncio
import json
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any

import pytest

from worker.engines.base import Answer
from worker.engines.vllm_answers import GRAMMAR_MESSAGE, refuse_failed_grammars, refuse_stream, settle, short_paths

STRUCTURED = SimpleNamespace(structured_outputs=object())
PLAIN = SimpleNamespace(structured_outputs=None)


class _Engine:
    """Gives one output, which ends as it is told to."""

    def __init__(self, finish_reason: str, token_ids: tuple[int, ...], **config: Any) -> None:
        self.vllm_config = SimpleNamespace(**config)
        self.closed = False
        self._output = SimpleNamespace(outputs=[SimpleNamespace(finish_reason=finish_reason, token_ids=token_ids)])

    async def generate(self, prompt: str, sampling_params: Any, request_id: str) -> AsyncGenerator[Any, None]:
        try:
            yield self._output
        finally:
            self.closed = True


def _generated(engine: _Engine, sampling_params: Any) -> list[Any]:
    async def collect() -> list[Any]:
        return [output async for output in engine.generate("hi", sampling_params, "id")]

    return asyncio.run(collect())


def test_a_grammar_that_does_not_compile_is_refused() -> None:
    engine = _Engine("error", ())
    refuse_failed_grammars(engine, ValueError)
    with pytest.raises(ValueError, match="cannot compile") as refusal:
        _generated(engine, STRUCTURED)
    assert str(refusal.value) == GRAMMAR_MESSAGE
    assert engine.closed


@pytest.mark.parametrize(
    ("engine", "sampling_params"),
    [
        (_Engine("error", ()), PLAIN),
        (_Engine("error", (5,)), STRUCTURED),
        (_Engine("stop", ()), STRUCTURED),
        (_Engine("abort", ()), STRUCTURED),
        (_Engine("error", (), kv_transfer_config=object()), STRUCTURED),
        (_Engine("error", (), ec_transfer_config=object()), STRUCTURED),
    ],
    ids=["no grammar", "after a token", "stop", "abort", "caches are moved", "encodings are moved"],
)
def test_every_other_end_is_left_to_vllm(engine: _Engine, sampling_params: Any) -> None:
    refuse_failed_grammars(engine, ValueError)
    assert len(_generated(engine, sampling_params)) == 1


def test_what_vllm_does_not_implement_is_asked_of_it_by_the_user() -> None:
    error = {"message": "Only base64 data URLs.", "type": "NotImplementedError", "param": None, "code": 501}
    answer = settle(Answer(501, json.dumps({"error": error}).encode()))
    settled = json.loads(answer.body)["error"]
    assert (answer.status, settled["code"], settled["message"]) == (400, 400, "Only base64 data URLs.")


@pytest.mark.parametrize(
    "answer", [Answer(200, b"{}"), Answer(400, b"{}"), Answer(500, b"{}"), Answer(501, b"no JSON"), Answer(501, b"[]")]
)
def test_all_other_answers_stay(answer: Answer) -> None:
    assert settle(answer) is answer


@pytest.mark.parametrize("body", [b'{"stream": true}', b'{"stream": "yes"}', b'{"stream": 1}'])
def test_a_stream_is_refused(body: bytes) -> None:
    refused = refuse_stream(body)
    assert refused is not None
    assert (refused.status, json.loads(refused.body)["error"]["param"]) == (400, "stream")


@pytest.mark.parametrize(
    "body", [b"{}", b'{"stream": false}', b'{"stream": null}', b'["stream"]', b'{"stream"', b'"a"']
)
def test_what_is_no_stream_is_vllms_to_judge(body: bytes) -> None:
    assert refuse_stream(body) is None


def test_two_endpoints_are_found_where_vllm_has_them() -> None:
    routes = [SimpleNamespace(path=path) for path in ("/classify", "/v1/embeddings", "/pooling", "/v1/pooling")]
    assert short_paths([*routes, object()]) == {"/v1/classify": "/classify"}
