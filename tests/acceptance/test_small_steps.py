"""The real engine with steps so small that every prompt takes several: what it answers, and that it survives.

Without `worker.engines.vllm_seeds` vLLM for CPU dies of requests with a `seed` here.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.acceptance.engine_thread import TINY_FLAGS, EngineThread, chat, vllm_host
from tests.acceptance.serve_calls import GENERATING
from tests.models import tiny_model
from worker.engines.base import Answer

pytestmark = pytest.mark.engine

SMALL_STEPS = (*TINY_FLAGS, "--max-num-batched-tokens", "64")
"""A step computes 64 tokens at most, so that a prompt of a few hundred takes several."""


def _seeded(row: int, **parameters: Any) -> dict[str, Any]:
    return chat(f"row {row} " * 40, seed=row, temperature=0.8, max_tokens=6, ignore_eos=True, **parameters)


def _texts(answer: Answer) -> list[str]:
    return [choice["message"]["content"] for choice in json.loads(answer.body)["choices"]]


@pytest.fixture(scope="module")
def host() -> Iterator[EngineThread]:
    with vllm_host(tiny_model(), *SMALL_STEPS) as host:
        yield host


def test_seeds(host: EngineThread) -> None:
    calls = [_seeded(row, n=1 + row % 3) for row in range(12)]
    together = [host.start_post(call) for call in calls]
    assert [post.result(120).status for post in together] == [200] * 12

    alone = [host.post(call) for call in calls]
    assert [answer.status for answer in alone] == [200] * 12
    assert [_texts(host.post(call)) for call in calls] == [_texts(answer) for answer in alone]


def test_calls_of_every_kind_at_once(host: EngineThread) -> None:
    answers = [host.submit(host.engine.post(call.url, json.dumps(call.body).encode())) for call in GENERATING]
    assert {post.result(120).status for post in answers} == {200, 400, 404}
