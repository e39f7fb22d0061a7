"""Where our answers differ from those of `vllm serve`: a user's mistake is never answered with a 5xx.

vLLM answers 500 when the grammar of a structured output does not compile, and 501 to what it does not implement.
Both are 400 here: the same request would fail again. And two paths have the other endpoints' prefix. Imports no vllm.
"""

import contextlib
from collections.abc import AsyncGenerator, Callable, Collection
from typing import Any

import orjson

from worker.engines.base import Answer

GRAMMAR_MESSAGE = (
    "The engine cannot compile the grammar of this request's structured output: its response_format, "
    "structured_outputs, or the parameters of a tool that must be called."
)
_NOT_IMPLEMENTED = 501
_SHORT_PATHS = {"/v1/classify": "/classify", "/v1/pooling": "/pooling"}
"""A line's url, and where vLLM has the endpoint: the only two without the prefix."""


def error_answer(status: int, kind: str, message: str, *, param: str | None = None) -> Answer:
    """An answer with the error object that the OpenAI API and vLLM use."""
    error = {"message": message, "type": kind, "param": param, "code": status}
    return Answer(status, orjson.dumps({"error": error}))


def refuse_stream(body: bytes) -> Answer | None:
    """The refusal of a call that asks for a stream; None for all others."""
    if b'"stream"' not in body:
        return None
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(fields, dict) or not fields.get("stream"):
        return None
    return error_answer(400, "BadRequestError", "stream is not supported in a batch", param="stream")


def settle(answer: Answer) -> Answer:
    """`answer`, or a 400 with its words where vLLM says that it does not implement what the call asks for."""
    if answer.status != _NOT_IMPLEMENTED:
        return answer
    try:
        error = orjson.loads(answer.body)["error"]
        return error_answer(400, "BadRequestError", error["message"], param=error["param"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return answer


def short_paths(routes: Collection[Any]) -> dict[str, str]:
    """Line urls whose endpoint an application with these `routes` has under another path, and that path."""
    paths = {getattr(route, "path", None) for route in routes}
    return {url: path for url, path in _SHORT_PATHS.items() if path in paths and url not in paths}


def refuse_failed_grammars(engine: Any, refusal: Callable[[str], Exception]) -> None:
    """Make `engine.generate` raise `refusal(message)` when a grammar does not compile, which is vLLM's 400.

    The engine core compiles, and tells no more than that the request ended with an error. Without a token before,
    and with no transfer of KV caches that could fail, nothing else ends a request with a structured output so.
    """
    config, generate = engine.vllm_config, engine.generate
    if getattr(config, "kv_transfer_config", None) or getattr(config, "ec_transfer_config", None):
        return

    def guarded(prompt: Any, sampling_params: Any, *rest: Any, **named: Any) -> AsyncGenerator[Any, None]:
        outputs: AsyncGenerator[Any, None] = generate(prompt, sampling_params, *rest, **named)
        is_structured = getattr(sampling_params, "structured_outputs", None) is not None
        return _refusing(outputs, refusal) if is_structured else outputs

    engine.generate = guarded


async def _refusing(
    outputs: AsyncGenerator[Any, None], refusal: Callable[[str], Exception]
) -> AsyncGenerator[Any, None]:
    async with contextlib.aclosing(outputs):
        async for output in outputs:
            if any(choice.finish_reason == "error" and not choice.token_ids for choice in output.outputs):
                raise refusal(GRAMMAR_MESSAGE)
            yield output
