"""The simulated engine in virtual time: what its profiles cost, and what its prompt patterns do."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from common.errors import EngineDeadError, RefusedError
from worker.clock import LoopClock, run_virtual
from worker.engines.base import Answer
from worker.engines.sim_engine import SimEngine
from worker.engines.sim_profiles import SimAction, SimPattern, parse_patterns

CHAT = "/v1/chat/completions"


def chat(text: str = "Say ok.", **parameters: object) -> bytes:
    message = {"role": "user", "content": text}
    return json.dumps({"model": "m", "messages": [message], **parameters}).encode()


def run(engine: SimEngine, work: Callable[[], Awaitable[Any]]) -> tuple[Any, float]:
    """What `work` returns with the engine up, and the virtual seconds it took."""

    async def main() -> tuple[Any, float]:
        await engine.start()
        started = asyncio.get_running_loop().time()
        value = await work()
        took_s = asyncio.get_running_loop().time() - started
        await engine.stop()
        return value, took_s

    return run_virtual(main())


def all_at_once(engine: SimEngine, bodies: list[bytes], url: str = CHAT) -> Callable[[], Awaitable[list[Answer]]]:
    async def work() -> list[Answer]:
        return list(await asyncio.gather(*(engine.post(url, body) for body in bodies)))

    return work


def test_bakery_takes_what_the_bakery_says() -> None:
    """Ten rows in static batches of four take 1.6 s, one by one 3.0 s: 1.87 times as long."""
    took_s = {}
    for places in (4, 1):
        engine = SimEngine("bakery", places=places)
        _, took_s[places] = run(engine, all_at_once(engine, [chat()] * 10))
    assert took_s[4] == pytest.approx(1.6)
    assert took_s[1] == pytest.approx(3.0)
    assert took_s[1] / took_s[4] == pytest.approx(1.87, abs=0.01)


def test_token_frees_a_place_at_once() -> None:
    """Two places: one long request, and short ones that follow each other beside it."""
    engine = SimEngine("token", seconds=0.1, places=2)
    bodies = [chat(max_tokens=30)] + [chat(max_tokens=10)] * 3
    answers, took_s = run(engine, all_at_once(engine, bodies))
    assert took_s == pytest.approx(3.0)
    assert engine.steps() == 30
    assert [json.loads(answer.body)["usage"]["completion_tokens"] for answer in answers] == [30, 10, 10, 10]


def test_token_serves_all_running_with_one_step() -> None:
    engine = SimEngine("token", seconds=0.1, places=8)
    _, took_s = run(engine, all_at_once(engine, [chat(max_tokens=20)] * 8))
    assert took_s == pytest.approx(2.0)


class LateClock(LoopClock):
    """Every timer fires 4 ms late, as it may on a busy machine."""

    async def sleep(self, duration_s: float) -> None:
        await super().sleep(duration_s + 0.004)


def test_late_timers_do_not_add_up() -> None:
    engine = SimEngine("token", seconds=0.01, clock=LateClock())
    _, took_s = run(engine, all_at_once(engine, [chat(max_tokens=100)]))
    assert took_s == pytest.approx(1.0, abs=0.005)


def test_a_pause_shortens_no_step() -> None:
    """A request that finds the engine idle takes all its steps' time, however short the idleness was."""
    engine = SimEngine("token", seconds=0.1)

    async def after_a_pause() -> float:
        await engine.post(CHAT, chat(max_tokens=1))
        await asyncio.sleep(0.05)
        began_s = asyncio.get_running_loop().time()
        await engine.post(CHAT, chat(max_tokens=1))
        return asyncio.get_running_loop().time() - began_s

    took_s, _ = run(engine, after_a_pause)
    assert took_s == pytest.approx(0.1)


def test_heavy_lengths_have_a_tail_and_depend_on_the_line_alone() -> None:
    def lengths(seed: int) -> list[int]:
        engine = SimEngine("heavy", places=400, seed=seed)
        answers, _ = run(engine, all_at_once(engine, [chat(f"row {i}", max_tokens=2000) for i in range(400)]))
        return [json.loads(answer.body)["usage"]["completion_tokens"] for answer in answers]

    first = lengths(1)
    assert first == lengths(1)
    assert first != lengths(2)
    median = sorted(first)[200]
    assert 24 <= median <= 42
    assert max(first) >= 8 * median


def test_zero_costs_nothing() -> None:
    engine = SimEngine("zero")
    answers, took_s = run(engine, all_at_once(engine, [chat(max_tokens=500)] * 100))
    assert took_s == 0
    assert {answer.status for answer in answers} == {200}


def test_the_answer_repeats_the_last_user_message_max_tokens_long() -> None:
    engine = SimEngine("zero")
    body = {
        "messages": [{"role": "user", "content": "no"}, {"role": "user", "content": "left\u2028right two"}],
        "max_tokens": 5,
    }
    ((answer,), _) = run(engine, all_at_once(engine, [json.dumps(body).encode()]))
    choice = json.loads(answer.body)["choices"][0]
    assert choice["message"]["content"] == "left\u2028right two left\u2028right two left\u2028right"
    assert choice["finish_reason"] == "length"


def test_without_a_limit_the_answer_ends_by_itself() -> None:
    engine = SimEngine("zero")
    ((answer,), _) = run(engine, all_at_once(engine, [chat("one two three")]))
    choice = json.loads(answer.body)["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("one two three", "stop")


def test_completions_and_embeddings() -> None:
    engine = SimEngine("zero")
    prompt = json.dumps({"prompt": ["a", "b"], "n": 2, "max_tokens": 1}).encode()
    ((answer,), _) = run(engine, all_at_once(engine, [prompt], "/v1/completions"))
    assert [(c["index"], c["text"]) for c in json.loads(answer.body)["choices"]] == [
        (0, "a"),
        (1, "a"),
        (2, "b"),
        (3, "b"),
    ]
    bodies = [json.dumps({"input": text}).encode() for text in ("a", "a", "b")]
    (vectors, _) = run(engine, all_at_once(engine, bodies, "/v1/embeddings"))
    a, again, b = (json.loads(vector.body)["data"][0]["embedding"] for vector in vectors)
    assert a == again != b


def test_cancelling_takes_a_request_out_and_lets_the_next_in() -> None:
    engine = SimEngine("token", seconds=1, places=1)

    async def work() -> float:
        first, second, third = (asyncio.create_task(engine.post(CHAT, chat(max_tokens=100))) for _ in range(3))
        await asyncio.sleep(10.5)
        first.cancel()
        third.cancel()
        await asyncio.wait({first, third})
        assert engine.unfinished() == 1
        assert (await second).status == 200
        return asyncio.get_running_loop().time()

    ended_s, _ = run(engine, work)
    assert ended_s == pytest.approx(111)
    assert engine.unfinished() == 0


def test_fail_and_fail_once() -> None:
    engine = SimEngine("zero", patterns=parse_patterns(["fail-once=ONCE", "fail=ALWAYS"]))
    bodies = [chat("ONCE a"), chat("ONCE a"), chat("ONCE b"), chat("ALWAYS"), chat("ALWAYS"), chat("fine")]
    answers, _ = run(engine, all_at_once(engine, bodies))
    assert [answer.status for answer in answers] == [503, 200, 503, 500, 500, 200]


def test_inf_logprobs_is_no_json() -> None:
    engine = SimEngine("zero", patterns=parse_patterns(["inf-logprobs=INF"]))
    ((answer,), _) = run(engine, all_at_once(engine, [chat("INF")]))

    def refuse(name: str) -> None:
        raise ValueError(name)

    assert answer.status == 200
    with pytest.raises(ValueError, match="-Infinity"):
        json.loads(answer.body, parse_constant=refuse)


@pytest.mark.parametrize("profile", ["token", "zero"])
def test_hang_stops_the_whole_engine_and_leaves_it_looking_healthy(profile: str) -> None:
    engine = SimEngine(profile, seconds=0.1, patterns=[SimPattern(SimAction.HANG, "HANG")])

    async def work() -> None:
        tasks = [asyncio.create_task(engine.post(CHAT, chat("HANG", max_tokens=9)))]
        await asyncio.sleep(5)
        tasks.append(asyncio.create_task(engine.post(CHAT, chat("fine", max_tokens=9))))
        await asyncio.sleep(1000)
        steps = engine.steps()
        await asyncio.sleep(1000)
        assert engine.steps() == steps
        assert engine.unfinished() == 2
        await engine.check_health()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert engine.unfinished() == 0

    run(engine, work)


@pytest.mark.parametrize(("action", "signum"), [("abort", signal.SIGABRT), ("kill", signal.SIGKILL)])
def test_abort_and_kill_end_the_process(action: str, signum: int, tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    script = (
        "import asyncio; from worker.engines.sim_engine import SimEngine\n"
        "from worker.engines.sim_profiles import parse_patterns\n"
        "async def main():\n"
        f"    engine = SimEngine('zero', patterns=parse_patterns(['{action}=DIE'])); await engine.start()\n"
        f"    for body in ({chat('fine')!r}, {chat('DIE')!r}): await engine.post('{CHAT}', body)\n"
        "asyncio.run(main())\n"
    )
    environment = {**os.environ, "BAKEHOUSE_SIM_CALLS": str(calls)}
    ended = subprocess.run([sys.executable, "-c", script], env=environment, timeout=30, check=False)
    assert ended.returncode == -signum
    assert [json.loads(line)["text"] for line in calls.read_text().splitlines()] == ["fine", "DIE"]


def test_stopping_tells_what_is_in_flight() -> None:
    engine = SimEngine("token", seconds=1)

    async def work() -> None:
        task = asyncio.create_task(engine.post(CHAT, chat(max_tokens=100)))
        await asyncio.sleep(1)
        await engine.stop()
        with pytest.raises(EngineDeadError):
            await task
        with pytest.raises(EngineDeadError):
            await engine.check_health()

    run(engine, work)


@pytest.mark.parametrize("option", ["explode=X", "fail", "fail=", "=X"])
def test_a_pattern_that_means_nothing_is_refused(option: str) -> None:
    with pytest.raises(RefusedError):
        parse_patterns([option])
