"""What a worker holds, against a real Redis: publishing, renewing, losing, claiming again, handing back."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from common.wire import ENTRY_BYTES, Result, unpack_results
from tests.servers import VALKEY, Server
from tests.waiting import wait_until
from tests.worker_parts import EPOCH, JOB, Job, WorkerParts, make_batch, worker_parts
from worker.holds import Hold
from worker.metrics import RESULTS, TOKENS
from worker.tasks import NEWER_VERSION_PAUSE_S

LONG = 10_000


def begin(worker: WorkerParts, in_flight: int) -> None:
    """Wait until so many requests are in the engine."""
    wait_until(
        lambda: worker.admission.in_flight == in_flight, timeout_s=5, description=f"{in_flight} requests in flight"
    )


def test_a_hint_becomes_results_and_a_full_micro_batch(job: Job, worker: WorkerParts) -> None:
    good, tokens = RESULTS.labels("ok")._value.get(), TOKENS.labels("completion", "ok")._value.get()
    job.offer(make_batch(32, tokens=[1 + i % 3 for i in range(32)]))
    assert worker.take().result(10)
    assert job.seqs() == list(range(32))
    assert job.stage() == "FULL"
    assert job.claims.look(JOB).digests
    assert (worker.admission.load, worker.keeper.holds(), worker.keeper.published) == (0, [], 32)
    assert RESULTS.labels("ok")._value.get() == good + 32
    assert TOKENS.labels("completion", "ok")._value.get() == tokens + sum(1 + i % 3 for i in range(32))


def test_what_is_finished_is_published_while_the_rest_runs(job: Job, worker: WorkerParts) -> None:
    job.offer(make_batch(4, tokens=[1, 1, 1, LONG]))
    done = worker.take()
    wait_until(lambda: job.seqs() == [0, 1, 2], timeout_s=5, description="three results are out")
    assert job.stage() == "HELD"
    assert not done.done()


def test_only_what_is_missing_is_run(job: Job, worker: WorkerParts) -> None:
    job.offer(make_batch(4), got=0b0101)
    assert worker.take().result(10)
    assert job.seqs() == [1, 3]
    assert job.stage() == "FULL"


@pytest.mark.parametrize("reason", ["gone", "paused", "other model"])
def test_a_hint_that_leads_to_nothing_is_dropped(job: Job, worker: WorkerParts, reason: str) -> None:
    if reason != "gone":
        job.offer(make_batch(2))
    if reason == "paused":
        job.claims.state(JOB, epoch=EPOCH, state="paused")
    if reason == "other model":
        job.claims.own(JOB, epoch=EPOCH, state="open", mb_high=0, digests={"*": "another"}, manifest="{}")
    assert worker.take().result(5)
    assert job.seqs() == []
    assert job.stage() == (None if reason == "gone" else "READY")
    assert worker.admission.load == 0


def test_a_hint_of_a_newer_wire_version_is_handed_back_slowly(job: Job, worker: WorkerParts) -> None:
    job.offer(make_batch(2))
    worker.admission.received("m", 2)
    began = time.monotonic()
    assert worker.desk.take("m", queue="bakehouse.q.*", version=99, job=JOB, mb=0) is None
    assert time.monotonic() - began >= NEWER_VERSION_PAUSE_S * 0.9, "or it would go round as fast as Redis answers"
    assert job.stage() == "READY"
    assert worker.admission.load == 0


@pytest.mark.parametrize("version", [0, -1, "1", None, [1], {}])
def test_a_hint_of_no_newer_version_is_dropped(job: Job, worker: WorkerParts, version: Any) -> None:
    job.offer(make_batch(2))
    assert "(wire version " in repr(worker.desk.take("m", queue="bakehouse.q.*", version=version, job=JOB, mb=0))
    assert job.stage() == "READY"


def test_an_unreadable_payload_goes_back(job: Job, worker: WorkerParts) -> None:
    job.offer(make_batch(2))
    job.client.hset(f"bakehouse:{{{JOB}}}:mb:0", "z", b"no zstd")
    assert worker.take().result(5)
    assert job.stage() == "READY"


def test_a_doubled_hint_does_not_touch_the_first_holder(job: Job, worker: WorkerParts) -> None:
    job.offer(make_batch(2, tokens=[60, 60]))
    first = worker.take()
    begin(worker, 2)
    assert worker.take().result(5)
    assert len(worker.keeper.holds()) == 1
    assert job.stage() == "HELD"
    assert first.result(10)
    assert job.seqs() == [0, 1]


def beat(job: Job) -> int:
    return job.claims.look(JOB).micro_batches[0].beat


def test_holds_are_renewed_while_the_loop_moves(job: Job, worker: WorkerParts) -> None:
    job.offer(make_batch(1, tokens=[LONG]))
    worker.take()
    begin(worker, 1)
    first = beat(job)
    wait_until(lambda: beat(job) >= first + 3, timeout_s=5, description="three renewals")
    thaw = worker.freeze_loop()
    try:
        wait_until(lambda: not worker.loop_moves(0.5), timeout_s=5, description="the loop stands still")
        still = beat(job)
        assert not worker.loop_moves(1.0)
        assert beat(job) <= still + 1, "a renewal that was under way may still land"
    finally:
        thaw.set()
    wait_until(lambda: beat(job) >= still + 2, timeout_s=5, description="renewed again")


def test_what_others_brought_is_stopped(job: Job, worker: WorkerParts) -> None:
    job.offer(make_batch(3, tokens=[LONG, LONG, 50]))
    done = worker.take()
    begin(worker, 3)
    job.claims.mark(JOB, 0, epoch=EPOCH, mask=0b011)
    assert done.result(10)
    assert job.seqs() == [2]
    assert (job.stage(), worker.engine.unfinished()) == ("FULL", 0)


def test_a_hold_lost_to_another_is_let_go(job: Job, worker: WorkerParts) -> None:
    job.offer(make_batch(2, tokens=[1, LONG]))
    done = worker.take()
    wait_until(lambda: job.seqs() == [0], timeout_s=5, description="one result is out")

    job.client.hset(f"bakehouse:{{{JOB}}}:mb:0", "tok", "f" * 32)
    assert done.result(10)
    assert (job.seqs(), worker.engine.unfinished()) == ([0], 0)
    assert (job.stage(), job.claims.look(JOB).micro_batches[0].token) == ("HELD", "f" * 32)


def test_a_hold_that_expired_goes_on_where_nobody_took_it(job: Job, worker: WorkerParts) -> None:
    job.offer(make_batch(2, tokens=[1, 100]))
    done = worker.take()
    wait_until(lambda: job.seqs() == [0], timeout_s=5, description="one result is out")

    def expire() -> bool:
        seen = job.claims.look(JOB).micro_batches[0]
        assert seen.token is not None
        return job.claims.expire(JOB, 0, epoch=EPOCH, token=seen.token, beat=seen.beat) == "OK"

    wait_until(expire, timeout_s=5, description="the hold is expired between two renewals")
    assert done.result(10)
    assert job.seqs() == [0, 1]
    assert (job.stage(), worker.engine.unfinished()) == ("FULL", 0)


@pytest.mark.parametrize("cut", ["flush", "tail"])
def test_after_a_loss_of_redis_data_it_claims_again_and_publishes_what_is_missing(
    job: Job, worker: WorkerParts, cut: str
) -> None:
    batch = make_batch(3, tokens=[1, 1, 150])
    job.offer(batch)
    done = worker.take()
    wait_until(lambda: job.seqs() == [0, 1], timeout_s=5, description="two results are out")
    calls = worker.engine.steps()
    if cut == "flush":
        job.client.flushall(asynchronous=False)
        job.take("rebuilding")
        job.offer(batch)
        job.claims.state(JOB, epoch=EPOCH, state="open")
    else:
        job.claims.close(JOB, [0], epoch=EPOCH)
        job.client.delete(f"bakehouse:{{{JOB}}}:results")
        job.offer(batch)
    assert done.result(20)
    assert job.seqs() == [0, 1, 2]
    assert job.stage() == "FULL"
    assert worker.engine.steps() - calls < 200, "what ran went on, nothing ran twice"
    assert all(result.attempts == 1 for result in job.results())


def test_a_solo_is_never_claimed_again(job: Job, worker: WorkerParts) -> None:
    batch = make_batch(1, tokens=[LONG], kind="solo")
    job.offer(batch)
    done = worker.take()
    begin(worker, 1)
    job.claims.close(JOB, [0], epoch=EPOCH)
    job.offer(batch)
    assert done.result(10)
    assert (job.stage(), worker.engine.unfinished()) == ("READY", 0)


@pytest.mark.parametrize("renewing", [True, False])
def test_cancelling_stops_publishes_and_releases(job: Job, worker: WorkerParts, renewing: bool) -> None:
    """Also between two renewals, which come seldom."""
    worker.keeper._renew_at = 0.0 if renewing else float("inf")
    job.offer(make_batch(2, tokens=[1, LONG]))
    done = worker.take()
    begin(worker, 1)
    job.claims.state(JOB, epoch=EPOCH, state="cancelling")
    assert done.result(10), "the hint is done with: the job wants no more"
    assert (job.seqs(), job.stage(), worker.engine.unfinished()) == ([0], "READY", 0)


def test_drain_finishes_what_it_can_and_hands_back_the_rest(job: Job, worker: WorkerParts) -> None:
    job.offer(make_batch(2, tokens=[30, LONG]), make_batch(2, mb=1, tokens=[30, 30]))
    long, short = worker.take(0), worker.take(1)
    begin(worker, 4)
    worker.ending.leave()
    assert short.result(10)
    assert not long.result(10)
    assert job.seqs() == [0, 1000, 1001]
    assert (job.stage(0), job.stage(1)) == ("READY", "FULL")
    assert not worker.take(0).result(5), "a hint that arrives while it leaves is handed back"
    assert (worker.ending.exit_code(), worker.engine.unfinished()) == (0, 0)


def test_second_interrupt_stops_at_once(job: Job, worker: WorkerParts) -> None:
    job.offer(make_batch(1, tokens=[LONG]))
    done = worker.take()
    begin(worker, 1)
    worker.ending.on_signal(signal.SIGINT, None)
    worker.ending.on_signal(signal.SIGINT, None)
    assert not done.result(5)
    assert (job.stage(), worker.ending.exit_code()) == ("READY", 130)


def test_results_wait_for_redis(tmp_path: Path) -> None:
    """Redis is killed while a micro-batch runs and comes back with its log: nothing is lost, nothing runs twice."""
    server = Server(VALKEY, tmp_path, "--appendfsync", "always").start()
    try:
        job = Job(server.client())
        job.offer(make_batch(2, tokens=[1, 50]))
        with worker_parts(server.client()) as worker:
            done = worker.take()
            begin(worker, 1)
            server.kill()
            wait_until(lambda: worker.admission.in_flight == 0, timeout_s=10, description="everything is answered")
            wait_until(lambda: worker.outage.lasted_s() > 0, timeout_s=10, description="the worker misses Redis")
            server.start()
            assert done.result(20)
            assert job.seqs() == [0, 1]
            assert job.stage() == "FULL"
    finally:
        server.stop()


def test_entries_are_at_most_a_mebibyte() -> None:
    hold = Hold(make_batch(5), token="t", got=0, model="*", abandon=lambda _mask: None, is_stuck=lambda: False)
    sizes = [400_000, 400_000, 400_000, 3 * ENTRY_BYTES, 10]
    for position, size in enumerate(sizes):
        hold.add(position, Result(position, 0, 200, "", 1, 0, 0, os.urandom(size)))
    publications = hold.publications()
    assert [publication.mask for publication in publications] == [0b11, 0b100, 0b1000, 0b10000]
    assert [len(unpack_results(publication.blob)) for publication in publications] == [2, 1, 1, 1]
    assert len(publications[0].blob) <= ENTRY_BYTES
