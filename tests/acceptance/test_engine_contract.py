"""One contract for every engine: what a worker may rely on, on the simulated engine and on the real vLLM."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
from pydantic_core import to_json

from common.errors import EngineDeadError
from tests.acceptance.engine_run import EngineRun
from tests.acceptance.engine_thread import CHAT, MODEL, EngineThread, chat, hosted
from tests.acceptance.serve_calls import GENERATING
from tests.waiting import wait_until
from worker.engines.base import Answer

ENGINES = ["sim", pytest.param("vllm", marks=pytest.mark.engine)]
VLLM_ONLY = pytest.mark.parametrize("engine", [pytest.param("vllm", marks=pytest.mark.engine)], indirect=True)
LONG: dict[str, Any] = {"max_tokens": 1500, "ignore_eos": True}


@pytest.fixture(scope="module", params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Iterator[EngineThread]:
    """One warm engine for all tests of this module."""
    with hosted(request.param) as host:
        yield host


def _choices(engine: EngineThread, body: dict[str, Any], url: str = CHAT) -> list[dict[str, Any]]:
    answer = engine.post(body, url)
    assert answer.status == 200, answer.body
    choices: list[dict[str, Any]] = json.loads(answer.body)["choices"]
    return choices


def test_facts(engine: EngineThread) -> None:
    facts = engine.facts
    assert facts.name.split(" ")[0] in ("sim", "vllm")
    assert facts.served_models == (MODEL,)
    assert len(facts.digest) == 16
    assert facts.concurrency == 16
    assert set(facts.start_phases_s) == {"import", "engine", "application"}
    assert facts.max_model_len_tokens is not None


def test_a_chat_call(engine: EngineThread) -> None:
    answer = engine.post(chat(ignore_eos=True))
    body = json.loads(answer.body)
    assert (answer.status, body["object"], body["model"]) == (200, "chat.completion", MODEL)
    assert body["choices"][0]["message"]["role"] == "assistant"
    assert isinstance(body["choices"][0]["message"]["content"], str)
    assert body["choices"][0]["finish_reason"] == "length"
    assert body["usage"]["completion_tokens"] == 8
    assert body["usage"]["prompt_tokens"] > 0


def test_a_completions_call(engine: EngineThread) -> None:
    body = {"model": MODEL, "prompt": "One two", "max_tokens": 4, "ignore_eos": True}
    (choice,) = _choices(engine, body, "/v1/completions")
    assert isinstance(choice["text"], str)
    assert choice["finish_reason"] == "length"


def test_choices_stay_together(engine: EngineThread) -> None:
    choices = _choices(engine, chat(n=3, temperature=0.8, seed=1))
    assert [choice["index"] for choice in choices] == [0, 1, 2]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (chat(model="no-such/model-7b"), 404),
        (chat(model=5), 400),
        (chat(messages=[]), 400),
        (chat(messages="hi"), 400),
        (chat(messages=[{"content": "no role"}]), 400),
        (chat(messages=[{"role": "user", "content": [{"type": "smell"}]}]), 400),
        (chat(max_tokens=-1), 400),
        (chat(max_tokens=16.5), 400),
        (chat(max_tokens=1_000_000), 400),
        (chat(temperature=-0.5), 400),
        (chat(top_p=1.5), 400),
        (chat(n=0), 400),
        (chat(n=1_000_000), 400),
        (chat(seed=1 << 63), 400),
        (chat(stream=True), 400),
        (chat(stream="true"), 400),
        (b'{"model": "test-model", "messages": [', 400),
        (b"[]", 400),
    ],
    ids=lambda value: repr(value)[-40:] if isinstance(value, bytes) else None,
)
def test_a_bad_call_is_refused_at_once(engine: EngineThread, body: dict[str, Any], status: int) -> None:
    started = time.monotonic()
    answer = engine.post(body)
    assert answer.status == status
    assert time.monotonic() - started < 1
    error = json.loads(answer.body)["error"]
    assert isinstance(error["message"], str)
    assert error["code"] == status


@pytest.mark.parametrize("url", ["/v1/no-such-endpoint", "/v1/score"])
def test_an_endpoint_that_is_not_there(engine: EngineThread, url: str) -> None:
    assert engine.post(chat(), url).status == 404


@pytest.mark.parametrize("stream", [False, None])
def test_stream_may_be_said_to_be_off(engine: EngineThread, stream: bool | None) -> None:
    assert engine.post(chat(stream=stream)).status == 200


def test_whatever_is_asked_no_call_is_answered_with_a_5xx(engine: EngineThread) -> None:
    """All calls of the contract with vLLM's server, on an engine without any flag for them."""
    answers = {call.name: engine.post(to_json(call.body), call.url) for call in GENERATING}
    assert {name: answer for name, answer in answers.items() if answer.status not in (200, 400, 404)} == {}
    errors = [json.loads(answer.body) for answer in answers.values() if answer.status == 400]
    assert all(isinstance(error["error"]["message"], str) for error in errors)
    assert engine.engine.unfinished() == 0


def test_requests_share_the_engines_steps(engine: EngineThread) -> None:
    """16 requests of 40 tokens are 640 steps one by one, and little more than 40 together."""
    before = engine.engine.steps()
    posts = [engine.start_post(chat(f"row {i}", max_tokens=40, ignore_eos=True)) for i in range(16)]
    answers = [post.result(60) for post in posts]
    assert {answer.status for answer in answers} == {200}
    assert 40 <= engine.engine.steps() - before <= 160


def test_steps_stand_still_while_nothing_runs(engine: EngineThread) -> None:
    post = engine.start_post(chat(**LONG))
    wait_until(lambda: engine.engine.unfinished() == 1, timeout_s=5, description="the request runs")
    before = engine.engine.steps()
    wait_until(lambda: engine.engine.steps() >= before + 3, timeout_s=5, description="steps are made")
    post.cancel()
    wait_until(lambda: engine.engine.unfinished() == 0, timeout_s=1, description="the engine is empty")
    engine.run(asyncio.sleep(0.2))
    before = engine.engine.steps()
    engine.run(asyncio.sleep(0.2))
    assert engine.engine.steps() == before


def test_cancelling_empties_the_engine_and_leaves_the_others(engine: EngineThread) -> None:
    """More requests than places, so that some wait; a choice of `n` is a request of its own inside vLLM."""
    cancelled = [engine.start_post(chat(**LONG, temperature=0.8, n=n)) for n in (1, 2, 3) for _ in range(10)]
    wait_until(lambda: engine.engine.unfinished() >= 30, timeout_s=10, description="all are inside")
    kept = engine.start_post(chat(max_tokens=20, ignore_eos=True))
    started = time.monotonic()
    for post in cancelled:
        post.cancel()
    assert kept.result(10).status == 200
    wait_until(lambda: engine.engine.unfinished() == 0, timeout_s=1, description="the engine is empty")
    assert time.monotonic() - started < 5


def test_the_engine_is_empty_once_the_cancellation_returns(engine: EngineThread) -> None:
    async def start() -> "asyncio.Task[Answer]":
        body = json.dumps(chat(**LONG, temperature=0.8, n=2)).encode()
        return asyncio.create_task(engine.engine.post(CHAT, body))

    async def cancel(task: "asyncio.Task[Answer]") -> int:
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
        return engine.engine.unfinished()

    task = engine.run(start())
    wait_until(lambda: engine.engine.unfinished() > 0, timeout_s=5, description="the request runs")
    assert engine.run(cancel(task)) == 0


def test_a_timeout_is_a_504_and_empties_the_engine(engine: EngineThread) -> None:
    """More requests than places: those that wait time out too."""
    timeout_s = 1.0
    run = EngineRun(engine, [1500] * 24, timeout_s=timeout_s)
    wait_until(lambda: engine.engine.unfinished() == 24, timeout_s=timeout_s, description="all are inside")
    left_s = timeout_s + 1 - (time.monotonic() - run.began)
    wait_until(
        lambda: engine.engine.unfinished() == 0, timeout_s=left_s, description="empty a second after the timeout"
    )
    results = run.join()
    assert {(result.status, result.code, result.attempts) for result in results.values()} == {(504, "timeout", 1)}
    assert {json.loads(result.line)["error"]["message"] for result in results.values()} == {"no answer within 1 s"}


def test_an_abort_leaves_no_result_and_no_request(engine: EngineThread) -> None:
    """The 400 that vLLM answers to a cancellation is nobody's result; the others do not notice."""
    run = EngineRun(engine, [1500] * 8 + [300] * 4, timeout_s=600)
    wait_until(lambda: engine.engine.unfinished() == 12, timeout_s=10, description="all are inside")
    run.abandon(0xFF)
    wait_until(lambda: engine.engine.unfinished() <= 4, timeout_s=1, description="those eight have left the engine")
    results = run.join()
    assert sorted(results) == [8, 9, 10, 11]
    assert {result.status for result in results.values()} == {200}


def test_a_healthy_engine_says_so(engine: EngineThread) -> None:
    engine.run(engine.engine.check_health())


@VLLM_ONLY
def test_a_dead_engine_core_is_told_to_all(engine: EngineThread) -> None:
    """The last but one: it kills the engine."""
    posts = [engine.start_post(chat(**LONG)) for _ in range(4)]
    wait_until(lambda: engine.engine.unfinished() == 4, timeout_s=10, description="all are inside")
    (core,) = [child for child in psutil.Process().children() if _is_engine_core(child)]
    core.kill()
    for post in posts:
        with pytest.raises(EngineDeadError):
            post.result(5)
    with pytest.raises(EngineDeadError):
        engine.run(engine.engine.check_health())
    with pytest.raises(EngineDeadError):
        engine.post(chat())


def test_stopping_leaves_no_process(engine: EngineThread) -> None:
    """The last: it stops the engine."""
    engine.run(engine.engine.stop())
    assert [child for child in psutil.Process().children(recursive=True) if _is_engine_core(child)] == []
    with pytest.raises(EngineDeadError):
        engine.post(chat())
    engine.run(engine.engine.stop())


@pytest.mark.engine
@pytest.mark.kill
def test_the_engine_core_ignores_ctrl_c_and_dies_with_its_worker() -> None:
    """A Ctrl-C in its group cuts no answer short; a kill -9 of the worker leaves no orphan."""
    worker = subprocess.Popen(
        [sys.executable, "-m", "tests.acceptance.engine_thread"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert worker.stdout is not None
    try:
        children = [psutil.Process(pid) for pid in json.loads(worker.stdout.readline())]
        (core,) = [child for child in children if _is_engine_core(child)]
        assert int(_status(core.pid, "SigIgn"), 16) & (1 << (signal.SIGINT - 1))
        worker.kill()
        worker.wait(10)
        wait_until(lambda: not any(map(_lives, children)), timeout_s=2, description="all children are gone")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(worker.pid, signal.SIGKILL)
        worker.wait(10)


def _is_engine_core(process: psutil.Process) -> bool:
    """vLLM's children are spawned by multiprocessing; its resource tracker is none of them."""
    try:
        return any("spawn_main" in word for word in process.cmdline()) or "EngineCore" in process.name()
    except psutil.NoSuchProcess:
        return False


def _lives(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def _status(pid: int, field: str) -> str:
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return next(line.split()[1] for line in status if line.startswith(f"{field}:"))
