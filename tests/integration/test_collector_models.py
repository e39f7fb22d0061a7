"""Which model answers a line, on a real server: named, served, pinned, waited for, or not there at all."""

import json
from pathlib import Path
from typing import Any

import pytest
import redis

from common import keys
from common.errors import InterruptedJobError
from tests.collecting import Bench, FakeEngineWorker, Running, write_input
from tests.servers import Server
from tests.waiting import wait_until


def write_models(path: Path, models: list[str | None]) -> Path:
    """A line for each of `models` (None: it names none)."""
    with path.open("w") as file:
        for i, model in enumerate(models):
            body: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}]}
            if model is not None:
                body["model"] = model
            line = {"custom_id": f"r{i}", "method": "POST", "url": "/v1/chat/completions", "body": body}
            file.write(json.dumps(line) + "\n")
    return path


def codes(bench: Bench) -> list[str | None]:
    """Each result's `error.code`, None where it is good."""
    return [result["error"]["code"] if result["error"] else None for result in bench.results()]


def test_without_a_worker_and_a_model_nothing_is_fed_and_that_is_said(
    tmp_path: Path, valkey: redis.Redis, valkey_server: Server
) -> None:
    bench = Bench(tmp_path, valkey_server, write_input(tmp_path / "in.jsonl", 10), model=None)
    outcome = bench.run(until="fed")
    assert (outcome.state, outcome.counts.fed, outcome.status) == ("open", 0, "in_progress")
    assert outcome.waiting_reason is not None
    assert "no live worker" in outcome.waiting_reason
    running = Running(bench.collector())
    wait_until(lambda: bench.reasons and bench.reasons[-1], timeout_s=10, description="it says what it waits for")
    with FakeEngineWorker(valkey_server):
        running.join()
    bench.check_whole(10)


def test_a_model_that_nobody_serves_is_404_at_once_and_others_go_on(
    tmp_path: Path, valkey: redis.Redis, valkey_server: Server
) -> None:
    source = write_models(tmp_path / "in.jsonl", ["m", "other", None, "M", "m"])
    bench = Bench(tmp_path, valkey_server, source, model=None)
    with FakeEngineWorker(valkey_server):
        outcome = bench.run()
    assert codes(bench) == [None, "model_not_found", None, "model_not_found", None]
    assert [r["response"]["status_code"] for r in bench.results()] == [200, 404, 200, 404, 200]
    assert outcome.exit_code == 1


def test_a_line_without_model_needs_one_when_several_answer(
    tmp_path: Path, valkey: redis.Redis, valkey_server: Server
) -> None:
    source = write_models(tmp_path / "in.jsonl", ["m", None, "n"])
    bench = Bench(tmp_path, valkey_server, source, model=None)
    with FakeEngineWorker(valkey_server), FakeEngineWorker(valkey_server, models=["n"]):
        bench.run()
    assert codes(bench) == [None, "invalid_request", None]


def test_a_named_model_is_fed_and_waited_for(tmp_path: Path, valkey: redis.Redis, valkey_server: Server) -> None:
    source = write_models(tmp_path / "in.jsonl", ["late", None, "m"])
    bench = Bench(tmp_path, valkey_server, source, model="late")
    with FakeEngineWorker(valkey_server):  # serves m only
        outcome = bench.run(until="fed")
        assert outcome.counts.fed == 3
        assert outcome.waiting_reason == "no live worker serves late"
    with FakeEngineWorker(valkey_server, models=["late"]):
        bench.run()
    assert codes(bench) == [None, None, "model_not_found"]


def test_a_worker_that_serves_any_name_takes_every_line(
    tmp_path: Path, valkey: redis.Redis, valkey_server: Server
) -> None:
    source = write_models(tmp_path / "in.jsonl", ["a", None, "b"])
    bench = Bench(tmp_path, valkey_server, source, model=None)
    with FakeEngineWorker(valkey_server, models=["*"]) as worker:
        bench.run()
    assert codes(bench) == [None, None, None]
    assert {where.split("\x06")[0] for where, _, _ in worker.hints} <= {keys.queue("*"), keys.queue("*", "d1")}


def test_hints_follow_when_only_a_worker_of_any_name_comes(
    tmp_path: Path, valkey: redis.Redis, valkey_server: Server
) -> None:
    """Fed to the queue of a model that nobody serves; then a worker comes that answers to every name."""
    bench = Bench(tmp_path, valkey_server, write_input(tmp_path / "in.jsonl", 10))
    bench.run(until="fed")
    with FakeEngineWorker(valkey_server, models=["*"]):
        Running(bench.collector()).join(timeout_s=10)
    bench.check_whole(10)


def test_the_first_claim_pins_the_build(tmp_path: Path, valkey: redis.Redis, valkey_server: Server) -> None:
    bench = Bench(tmp_path, valkey_server, write_input(tmp_path / "in.jsonl", 200))
    with FakeEngineWorker(valkey_server, digest="one") as one, FakeEngineWorker(valkey_server, digest="two") as two:
        bench.run()
    bench.check_whole(200)
    served = [worker for worker in (one, two) if worker.claimed]
    assert len(served) == 1, "one job never mixes builds"
    assert {r["response"]["body"]["by"] for r in bench.results()} == {served[0].incarnation}


def test_a_pinned_build_that_is_gone_is_named(tmp_path: Path, valkey: redis.Redis, valkey_server: Server) -> None:
    bench = Bench(tmp_path, valkey_server, write_input(tmp_path / "in.jsonl", 40))

    def first_only(worker: FakeEngineWorker, *what: Any) -> None:
        if len(worker.claimed) == 1:
            worker.publish_all(*what)

    running = Running(bench.collector())
    with FakeEngineWorker(valkey_server, digest="one", publish=first_only):
        wait_until(
            lambda: bench.directory.output_path.exists() and bench.results(),
            timeout_s=10,
            description="a result stands",
        )
    with FakeEngineWorker(valkey_server, digest="two") as two:
        wait_until(
            lambda: bench.reasons[-1] == "no live worker serves m in the build one that this job began with",
            timeout_s=10,
            description="the build is named",
        )
        assert not two.claimed
    running.collector.stop()
    with pytest.raises(InterruptedJobError):
        running.join()
