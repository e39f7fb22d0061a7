"""GPU seconds of a job: each worker's busy time, split by tokens."""

import pytest

from common.result_line import Meta, build_result_line
from common.wire import Result
from producer.fleet import Worker
from producer.usage import Usage, cost_of, worker_of


def result(worker: str | None, *, tokens: int, text: str = "x") -> Result:
    line = build_result_line(
        job="j", seq=0, custom_id="a", line=1, status=200, request_id="r", body={"text": text}, kind=None, message="",
        meta=Meta(worker=worker), original=None,
    )  # fmt: skip
    return Result(0, 0, 200, "", 1, 0, tokens - 1, line)


def worker(name: str, *, busy_s: float, tokens: int, gpu: str = "0") -> Worker:
    return Worker(name, ("m",), "d", "ready", 8, tokens=tokens, busy_s=busy_s, gpu=gpu)


def test_a_job_alone_has_all_of_a_workers_busy_time() -> None:
    usage = Usage(0.0)
    usage.look([worker("w", busy_s=100, tokens=5_000)], now_s=0)
    usage.note([result("w", tokens=300)] * 10)
    usage.look([worker("w", busy_s=160, tokens=8_000)], now_s=60)
    assert usage.total_s(now_s=60) == pytest.approx(60)


def test_a_shared_workers_time_is_split_by_tokens() -> None:
    jobs = {"large": 300, "small": 100}
    usages = {name: Usage(0.0) for name in jobs}
    for name, usage in usages.items():
        usage.look([worker("w", busy_s=0, tokens=0)], now_s=0)
        usage.note([result("w", tokens=jobs[name])] * 10)
        usage.look([worker("w", busy_s=60, tokens=4_000)], now_s=60)
    assert {name: usage.total_s(now_s=60) for name, usage in usages.items()} == {
        "large": pytest.approx(45),
        "small": pytest.approx(15),
    }


def test_each_gpu_of_a_group_counts() -> None:
    usage = Usage(7.0)
    usage.look([worker("w", busy_s=0, tokens=0, gpu="0+1")], now_s=0)
    usage.note([result("w", tokens=100)])
    usage.look([worker("w", busy_s=10, tokens=100, gpu="0+1")], now_s=10)
    assert usage.total_s(now_s=10) == pytest.approx(7 + 20)


def test_a_job_shorter_than_a_heartbeat_has_its_time() -> None:
    usage = Usage(0.0)
    usage.look([worker("w", busy_s=0, tokens=0)], now_s=0)
    usage.note([result("w", tokens=100)])
    assert usage.total_s(now_s=3) == pytest.approx(3)
    assert usage.total_s(now_s=3_000) == pytest.approx(5), "a heartbeat is no older"


def test_what_ran_while_no_collector_looked_is_charged_when_its_results_come() -> None:
    usage = Usage(0.0)
    usage.look([worker("w", busy_s=100, tokens=10_000)], now_s=0)
    usage.note([result("w", tokens=500)] * 10)
    usage.look([worker("w", busy_s=100, tokens=10_000)], now_s=60)
    assert usage.total_s(now_s=60) == pytest.approx(50)


def test_no_worker_is_charged_for_more_than_its_life() -> None:
    usage = Usage(0.0)
    usage.look([worker("w", busy_s=0, tokens=0)], now_s=0)
    usage.note([result("w", tokens=100)] * 100)
    usage.look([worker("w", busy_s=5, tokens=10)], now_s=5)
    assert usage.total_s(now_s=7) == pytest.approx(7)


def test_a_result_says_who_made_it() -> None:
    fake = '"worker":"someone else"'
    assert worker_of(result("host-0-1a2b", tokens=1, text=fake).line) == "host-0-1a2b"
    assert worker_of(result(None, tokens=1).line) == ""
    usage = Usage(0.0)
    usage.note([])
    usage.note([result("unknown", tokens=1)])
    assert usage.total_s(now_s=1) == 0


def test_cost() -> None:
    assert cost_of(5_400, per_hour=2.0) == 3.0
