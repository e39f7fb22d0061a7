"""What the simulated engine reads in a call and writes in an answer, in the OpenAI API's shapes.

Refuses what vLLM refuses, as far as tests need it: a call that is not refused becomes a `SimCall`, which knows
how long its answer is and can write it. The answer repeats the text of the last user message.
"""

import hashlib
import itertools
import time
from typing import Any, NamedTuple

import orjson

from worker.engines.base import Answer

CONTEXT_TOKENS = 32768
_MAX_N = 16384
"""vLLM's own limit of choices a request (VLLM_MAX_N_SEQUENCES)."""
_INT64 = (-(1 << 63), (1 << 63) - 1)
_BOUNDS: dict[str, tuple[bool, float, float]] = {
    "max_tokens": (True, 1, CONTEXT_TOKENS),
    "max_completion_tokens": (True, 1, CONTEXT_TOKENS),
    "n": (True, 1, _MAX_N),
    "seed": (True, *_INT64),
    "temperature": (False, 0.0, float("inf")),
    "top_p": (False, 1e-9, 1.0),
    "presence_penalty": (False, -2.0, 2.0),
    "frequency_penalty": (False, -2.0, 2.0),
    "repetition_penalty": (False, 1e-9, float("inf")),
}
"""Whether it must be a whole number, and from where to where it goes."""
_EMBEDDING_SIZE = 8
_MINUS_INFINITY = "-Infinity as a bare word"
_MINUS_INFINITY_JSON = orjson.dumps(_MINUS_INFINITY)
_numbers = itertools.count()


class _Refused(Exception):
    """What is wrong with a call; carries the answer."""

    def __init__(self, message: str, *, param: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        kind = "NotFoundError" if status == 404 else "BadRequestError"
        self.answer = error_answer(status, kind, message, param=param)


class SimCall(NamedTuple):
    """One accepted call."""

    url: str
    model: str
    texts: tuple[str, ...]
    """What each answer repeats; patterns look for their text in the first."""
    prompt_tokens: int
    choices: int
    """Answers for each text (`n`)."""
    limit: int | None
    """Tokens an answer may have at most; None: as many as its text."""

    def answer(self, tokens: int, *, inf_logprobs: bool = False) -> Answer:
        """The good answer, each choice `tokens` tokens long."""
        if self.url == "/v1/embeddings":
            return Answer(200, orjson.dumps(self._embeddings()))
        is_chat = self.url == "/v1/chat/completions"
        logprobs = {"content": [{"token": "a", "logprob": _MINUS_INFINITY}]} if inf_logprobs else None
        finish = "length" if tokens == self.limit else "stop"
        choices: list[dict[str, object]] = []
        for text in self.texts:
            repeated = _repeated(text, tokens)
            said = {"message": {"role": "assistant", "content": repeated}} if is_chat else {"text": repeated}
            for _ in range(self.choices):
                choices.append({"index": len(choices), **said, "logprobs": logprobs, "finish_reason": finish})
        body = orjson.dumps(
            {
                "id": f"{'chatcmpl' if is_chat else 'cmpl'}-sim-{next(_numbers)}",
                "object": "chat.completion" if is_chat else "text_completion",
                "created": int(time.time()),
                "model": self.model,
                "choices": choices,
                "usage": self._usage(tokens * len(choices)),
            }
        )
        return Answer(200, body.replace(_MINUS_INFINITY_JSON, b"-Infinity") if inf_logprobs else body)

    def _usage(self, completion_tokens: int) -> dict[str, int]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": self.prompt_tokens + completion_tokens,
        }

    def _embeddings(self) -> dict[str, object]:
        data = [
            {"object": "embedding", "index": index, "embedding": _vector(text)} for index, text in enumerate(self.texts)
        ]
        return {"object": "list", "data": data, "model": self.model, "usage": self._usage(0)}


def error_answer(status: int, kind: str, message: str, *, param: str | None = None) -> Answer:
    """An answer with the error object that the OpenAI API and vLLM use."""
    error = {"message": message, "type": kind, "param": param, "code": status}
    return Answer(status, orjson.dumps({"error": error}))


def read_call(url: str, body: bytes, *, served: str | None) -> SimCall | Answer:
    """The call in `body`, or the answer that refuses it. `served`: the only model there is; None: any."""
    reader = _READERS.get(url)
    if reader is None:
        return Answer(404, b'{"detail":"Not Found"}')
    try:
        fields = orjson.loads(body)
        if not isinstance(fields, dict):
            raise _Refused("the body is not an object")
        model = _model(fields, served)
        all_texts, texts = reader(fields)
        limit, choices = _numbers_of(fields)
    except orjson.JSONDecodeError as error:
        return error_answer(400, "BadRequestError", f"JSON decode error: {error}")
    except _Refused as refused:
        return refused.answer
    prompt_tokens = len(all_texts)
    for text in all_texts:
        prompt_tokens += text.count(" ")
    if prompt_tokens + (limit or 0) > CONTEXT_TOKENS:
        message = f"maximum context length is {CONTEXT_TOKENS} tokens, the prompt has {prompt_tokens}"
        return error_answer(400, "BadRequestError", message, param="input_tokens")
    return SimCall(url, model, tuple(texts), prompt_tokens, choices, limit)


def _model(fields: dict[str, Any], served: str | None) -> str:
    model = fields.get("model")
    if model is None:
        return served or "sim"
    if not isinstance(model, str):
        raise _Refused("model: Input should be a valid string", param="model")
    if served is not None and model != served:
        raise _Refused(f"The model `{model}` does not exist.", param="model", status=404)
    return model


def _numbers_of(fields: dict[str, Any]) -> tuple[int | None, int]:
    """The limit of tokens and the number of choices; all numbers checked."""
    if fields.get("stream"):
        raise _Refused("stream is not supported in a batch", param="stream")
    for name in _BOUNDS.keys() & fields.keys():
        value = fields[name]
        if value is not None:
            is_whole, low, high = _BOUNDS[name]
            is_number = isinstance(value, int if is_whole else (int, float)) and not isinstance(value, bool)
            if not is_number or not low <= value <= high:
                raise _Refused(f"{name} must be between {low} and {high}, got {value!r}", param=name)
    limit = fields.get("max_completion_tokens") or fields.get("max_tokens")
    return limit, fields.get("n") or 1


def _chat_texts(fields: dict[str, Any]) -> tuple[list[str], list[str]]:
    """The texts of all messages, and that of the last user message (of the last message if there is none)."""
    messages = fields.get("messages")
    if not isinstance(messages, list) or not messages:
        raise _Refused("messages: Input should be a valid list, not empty", param="messages")
    texts: list[str] = []
    last = None
    for message in messages:
        role = message.get("role") if isinstance(message, dict) else None
        if not isinstance(role, str):
            raise _Refused("messages: each needs a role", param="messages")
        content = message.get("content")
        texts.append(content if isinstance(content, str) else _content(content))
        if role == "user":
            last = texts[-1]
    return texts, [texts[-1] if last is None else last]


def _content(content: object) -> str:
    if content is None:
        return ""
    if not isinstance(content, list):
        raise _Refused("content: Input should be a valid string or list", param="messages")
    if not all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in content):
        raise _Refused("content: only parts of type text", param="messages")
    return " ".join(part["text"] for part in content)


def _prompt_texts(fields: dict[str, Any]) -> tuple[list[str], list[str]]:
    return _texts(fields.get("prompt"), "prompt")


def _input_texts(fields: dict[str, Any]) -> tuple[list[str], list[str]]:
    return _texts(fields.get("input"), "input")


def _texts(value: object, name: str) -> tuple[list[str], list[str]]:
    """One text or several; tokens given as numbers stand as words."""
    items = value if isinstance(value, list) and not all(isinstance(i, int) for i in value) else [value]
    texts = []
    for item in items:
        if isinstance(item, list) and item and all(isinstance(token, int) for token in item):
            texts.append(" ".join(map(str, item)))
        elif isinstance(item, str):
            texts.append(item)
        else:
            raise _Refused(f"{name}: Input should be a valid string or list", param=name)
    if not texts:
        raise _Refused(f"{name}: Input should not be empty", param=name)
    return texts, texts


def _repeated(text: str, tokens: int) -> str:
    """`text` over and over, cut after `tokens` words."""
    words = text.split(" ", tokens)[:tokens]
    if len(words) < tokens:
        words = (words * (tokens // len(words) + 1))[:tokens]
    return " ".join(words)


def _vector(text: str) -> list[float]:
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).digest()
    return [byte / 255 for byte in digest[:_EMBEDDING_SIZE]]


_READERS = {
    "/v1/chat/completions": _chat_texts,
    "/v1/completions": _prompt_texts,
    "/v1/embeddings": _input_texts,
}
