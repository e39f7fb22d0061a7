"""A collector that is steered: it obeys wishes from Redis and from the job directory, and no crash loses one."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from common import keys
from common.wire import MicroBatch, Request, Result
from producer.asking import Asking
from producer.journal_reader import Checkpoint, read_checkpoint
from producer.steering import Verb, Wish
from producer.wish_file import leave_wish, read_wish
from tests.collecting import Bench, FakeEngineWorker, Running, quick_settings, write_input
from tests.servers import VALKEY, Server
from tests.waiting import wait_until

ROWS = 100


@pytest.fixture
def bench(tmp_path: Path, valkey: redis.Redis, valkey_server: Server) -> Bench:
    """A job of 100 good lines for model m, of which two micro-batches are out at a time."""
    settings = quick_settings(valkey_server, max_concurrency=16)
    return Bench(tmp_path, valkey_server, write_input(tmp_path / "in.jsonl", ROWS), settings=settings)


class HeldWorker(FakeEngineWorker):
    """A worker that publishes what it has claimed only when it is let."""

    def __init__(self, server: Server) -> None:
        super().__init__(server, steps=(0, 3, 6))
        self.may_publish = threading.Event()

    def publish_all(self, job: str, batch: MicroBatch, token: str, got: int) -> None:
        """Hold it, renewing, until it may be published."""
        while not self.may_publish.wait(0.05):
            self.claims.renew(job, [(batch.mb, token)])
        super().publish_all(job, batch, token, got)


@pytest.fixture
def held(valkey_server: Server) -> Iterator[HeldWorker]:
    """A worker that holds its first micro-batch."""
    worker = HeldWorker(valkey_server)
    with worker:
        yield worker
        worker.may_publish.set()


def ask(bench: Bench, verb: Verb) -> None:
    """As another host does."""
    assert bench.claims.ask(bench.job, str(Wish.make(verb))) == "OK"


def journal_of(bench: Bench) -> Checkpoint:
    """What the journal says."""
    checkpoint = read_checkpoint(bench.directory.journal_path)
    assert checkpoint is not None
    return checkpoint


def await_state(bench: Bench, state: str) -> None:
    """Block until Redis has the job in `state`."""
    wait_until(lambda: bench.claims.look(bench.job).state == state, timeout_s=20, description=state)


def test_a_pause_ends_the_run_once_nothing_is_held(bench: Bench, held: HeldWorker) -> None:
    running = Running(bench.collector())
    wait_until(lambda: held.claimed, timeout_s=20, description="something is held")
    ask(bench, "pause")
    await_state(bench, "paused")
    looks = bench.claims.look(bench.job).fields["seen"]
    wait_until(lambda: bench.claims.look(bench.job).fields["seen"] != looks, timeout_s=20, description="it looks on")
    assert running.alive(), "what is held is waited for"
    held.may_publish.set()
    outcome = running.join()
    assert (outcome.status, outcome.exit_code) == ("paused", 3)
    assert "producer pause" in (outcome.waiting_reason or "")
    assert outcome.counts.done == len(bench.results()) == 8, "what ran was received, and nothing else begun"
    assert outcome.counts.fed == 16, "there was room, and nothing was fed"
    assert bench.claims.look(bench.job).fields["reason"] == outcome.waiting_reason
    again = bench.run()
    assert (again.status, again.exit_code, again.waiting_reason) == ("paused", 3, outcome.waiting_reason)
    assert bench.run(until="fed").status == "paused"
    assert journal_of(bench).counts.done == 8


def test_a_resume_hints_what_is_ready_at_once(bench: Bench, valkey_server: Server, held: HeldWorker) -> None:
    running = Running(bench.collector(), stays=True)
    wait_until(lambda: held.claimed and held.waiting_hints(), timeout_s=20, description="one is held, one waits")
    ask(bench, "pause")
    await_state(bench, "paused")
    with FakeEngineWorker(valkey_server, steps=(0, 3, 6)) as worker:
        for queue in FakeEngineWorker(valkey_server).queue_keys()[-2:]:
            worker.client.lpush(queue, "a hint of another job, which nobody takes: the queue is not empty")
        wait_until(lambda: "paused" in worker.answers, timeout_s=20, description="a claim is refused")
        wait_until(lambda: not worker.waiting_hints(), timeout_s=20, description="all hints are dropped")
        assert not worker.claimed
        ask(bench, "resume")
        wait_until(lambda: journal_of(bench).counts.done == ROWS - 8, timeout_s=20, description="the others are done")
        held.may_publish.set()
        assert running.join().status == "completed"
    bench.check_whole(ROWS)


def test_redis_that_is_flushed_stays_paused(bench: Bench, valkey: redis.Redis, held: HeldWorker) -> None:
    running = Running(bench.collector(), stays=True)
    wait_until(lambda: held.claimed, timeout_s=20, description="something is held")
    ask(bench, "pause")
    await_state(bench, "paused")
    heard = bench.claims.look(bench.job).fields["heard"]
    valkey.flushall()
    await_state(bench, "paused")
    assert bench.claims.look(bench.job).fields["heard"] == heard
    assert len(held.claimed) == 1
    ask(bench, "resume")
    await_state(bench, "open")
    held.may_publish.set()
    running.join()
    bench.check_whole(ROWS)


def test_a_wish_in_the_directory_needs_no_redis(tmp_path: Path) -> None:
    server = Server(VALKEY, tmp_path / "data").start()
    bench = Bench(tmp_path, server, write_input(tmp_path / "in.jsonl", ROWS))
    running = Running(bench.collector())
    await_state(bench, "open")
    server.kill()
    leave_wish(bench.directory.want_path, Wish.make("pause"))
    wait_until(lambda: journal_of(bench).state == "paused", timeout_s=20, description="it is heard")
    assert running.alive(), "Redis is to be told"
    server.start()
    assert running.join().status == "paused"
    assert bench.claims.look(bench.job).state == "paused"
    server.stop()


@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_killed_between_journal_and_redis(bench: Bench, valkey_server: Server, verb: Verb) -> None:
    """What was journaled is done by the next collector, though nobody wishes it again."""
    if verb == "resume":
        leave_wish(bench.directory.want_path, Wish.make("pause"))
        bench.run()
    ask_first = "producer.helm:say_course"
    leave_wish(bench.directory.want_path, Wish.make(verb))
    bench.crash(ask_first, 1)
    assert journal_of(bench).state == {"pause": "paused", "resume": "open"}[verb]
    assert bench.claims.look(bench.job).state == ("open" if verb == "pause" else "paused"), "Redis had not been told"
    if verb == "pause":
        assert bench.run().status == "paused"
        assert bench.claims.look(bench.job).state == "paused"
        return
    with FakeEngineWorker(valkey_server):
        assert bench.run().status == "completed"
    bench.check_whole(ROWS)


def fail(worker: FakeEngineWorker, request: Request) -> Result:
    """A result of an engine that answers nothing but 500."""
    return Result(request.seq, request.round, 500, "engine_error", 1, 0, 0, b'{"error": {"code": "engine_error"}}')


def test_a_failing_deploy_stops_itself(
    bench: Bench, valkey_server: Server, valkey: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeEngineWorker, "result", lambda worker, _job, request: fail(worker, request))
    with FakeEngineWorker(valkey_server):
        outcome = bench.run()
        assert outcome.status == "paused"
        assert "results are 5xx (engine_error" in (outcome.waiting_reason or "")
        assert 50 <= outcome.counts.done < ROWS
        leave_wish(bench.directory.want_path, Wish.make("resume"))
        rest = bench.run()
    assert (rest.status, rest.exit_code) == ("completed", 1), "fewer than 50 are left to be counted"


def test_a_job_that_may_fail_goes_on(
    tmp_path: Path, valkey: redis.Redis, valkey_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeEngineWorker, "result", lambda worker, _job, request: fail(worker, request))
    settings = quick_settings(valkey_server, pause_above=1.0)
    bench = Bench(tmp_path, valkey_server, write_input(tmp_path / "in.jsonl", ROWS), settings=settings)
    with FakeEngineWorker(valkey_server):
        assert (bench.run().status, journal_of(bench).counts.failed) == ("completed", ROWS)


def test_a_finished_job_leaves_no_wish_for_a_rerun(bench: Bench, valkey: redis.Redis, held: HeldWorker) -> None:
    """A wish that came too late."""
    running = Running(bench.collector())
    wait_until(lambda: held.claimed, timeout_s=20, description="something is held")
    settings = bench.settings.model_copy(update={"jobs": bench.jobs})
    held.may_publish.set()
    running.join()
    leave_wish(bench.directory.want_path, Wish.make("cancel"))
    valkey.hset(keys.info(bench.job), "want", str(Wish.make("cancel")))
    assert bench.run().status == "completed"
    assert read_wish(bench.directory.want_path) is None
    assert bench.claims.look(bench.job).want is None
    assert Asking("cancel", bench.job, settings=settings).ask() is None, "it is for the command to say what it is"
