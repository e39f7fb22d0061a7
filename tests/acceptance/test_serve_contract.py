"""Our engine answers as vLLM's own server does: status and body of each call, sent one at a time to both.

Ids, times and values of log-probabilities apart. The calls, each a line that the reader lets pass: `serve_calls`.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pydantic_core import to_json

from producer.line_rules import check_line
from tests.acceptance.engine_thread import MODEL, TINY_FLAGS, EngineThread, vllm_host
from tests.acceptance.openai_server import OpenAiServer, openai_server
from tests.acceptance.serve_calls import ADAPTER, CLASSIFY, CLASSIFYING, EMBEDDING, GENERATING, POOLING, Call
from tests.models import tiny_adapter, tiny_classifier, tiny_model
from worker.engines.base import Answer
from worker.engines.vllm_answers import GRAMMAR_MESSAGE
from worker.verdict import judge

pytestmark = pytest.mark.engine

GENERATING_FLAGS = (
    *("--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--reasoning-parser", "granite"),
    *("--structured-outputs-config.enable_in_reasoning=True", "--structured-outputs-config.backend=auto"),
    *("--enable-lora", "--max-lora-rank", "8"),
)
SHORT = {CLASSIFY: "/classify", POOLING: "/pooling"}
"""Where vLLM's server has what a line calls by these urls."""
VOLATILE = {"id", "call_id", "created", "created_at", "completed_at", "request_id"}
MEASURED = {"logprob", "token_logprobs", "prompt_logprobs"}


class Pair(NamedTuple):
    """Our engine, and the server it is measured by."""

    ours: EngineThread
    theirs: OpenAiServer

    def ask(self, call: Call) -> tuple[Answer, Answer]:
        """What we answer, and what they do."""
        line = {"custom_id": "a", "method": "POST", "url": call.url, "body": call.body}
        body = to_json(check_line(line).body)
        return self.ours.post(body, call.url), self.theirs.post(SHORT.get(call.url, call.url), body)


def _kinds() -> dict[str, tuple[Path, tuple[str, ...]]]:
    adapter = ("--lora-modules", f"{ADAPTER}={tiny_adapter()}")
    return {
        "generating": (tiny_model(), (*GENERATING_FLAGS, *adapter)),
        "embedding": (tiny_model(), ("--runner", "pooling", "--convert", "embed")),
        "classifying": (tiny_classifier(), ("--runner", "pooling")),
    }


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, OpenAiServer]]:
    """vLLM's own servers, all on their way up at once."""
    logs = tmp_path_factory.mktemp("servers")
    own = ("--served-model-name", MODEL, "--enforce-eager")
    with ExitStack() as stack:
        yield {
            kind: stack.enter_context(openai_server(model, *TINY_FLAGS, *own, *flags, log=logs / f"{kind}.log"))
            for kind, (model, flags) in _kinds().items()
        }


@pytest.fixture(scope="module")
def pair(request: pytest.FixtureRequest, servers: dict[str, OpenAiServer]) -> Iterator[Pair]:
    """Both of one kind, up."""
    model, flags = _kinds()[request.param]
    with vllm_host(model, *TINY_FLAGS, *flags) as ours:
        theirs = servers[request.param]
        theirs.wait_ready()
        yield Pair(ours, theirs)


def _calls(kind: str, calls: tuple[Call, ...]) -> list[Any]:
    return [pytest.param(kind, call, id=f"{kind}: {call.name}") for call in calls]


@pytest.mark.parametrize(
    ("pair", "call"),
    [*_calls("generating", GENERATING), *_calls("embedding", EMBEDDING), *_calls("classifying", CLASSIFYING)],
    indirect=["pair"],
    scope="module",
)
def test_our_answer_is_theirs(pair: Pair, call: Call) -> None:
    ours, theirs = pair.ask(call)
    if call.grammar_fails:
        assert theirs.status == 500, "vLLM has mended this: let it stand among the others"
        assert (ours.status, json.loads(ours.body)["error"]["message"]) == (400, GRAMMAR_MESSAGE)
        return
    assert ours.status == theirs.status, (ours.body, theirs.body)
    assert _lasting(json.loads(ours.body)) == _lasting(json.loads(theirs.body))
    assert ours.status < 500


@pytest.mark.parametrize("pair", ["generating"], indirect=True, scope="module")
def test_an_adapter_is_a_model_of_its_own(pair: Pair) -> None:
    """Lines that name it are routed to this worker, and it answers in its own words."""
    facts = pair.ours.facts
    assert facts.served_models == (MODEL, ADAPTER)
    texts = [
        pair.ours.post({"model": name, "prompt": "One two", "max_tokens": 8, "temperature": 0}, "/v1/completions")
        for name in facts.served_models
    ]
    assert len({json.loads(text.body)["choices"][0]["text"] for text in texts}) == 2
    assert judge(texts[1]).kind is None


def _lasting(value: Any) -> Any:
    """`value` without what differs from one answer to the next."""
    if isinstance(value, dict):
        return {
            name: "measured" if name in MEASURED and field is not None else _lasting(field)
            for name, field in value.items()
            if name not in VOLATILE
        }
    return [_lasting(item) for item in value] if isinstance(value, list) else value
