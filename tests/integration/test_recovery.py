"""The janitor on a real server: holds, hints, entries, whole databases that are lost, and what becomes of the work."""

import sqlite3
import threading
from pathlib import Path

import pytest
import redis

from common import keys
from common.claim_types import Publication
from common.errors import ExitCode
from common.wire import MicroBatch
from producer.janitor import Janitor
from producer.job import Job
from producer.journal import Journal
from producer.output import Output
from producer.ownership import take
from producer.receiver import Receiver
from tests.collecting import Bench, FakeEngineWorker, Running, quick_settings, write_input
from tests.servers import Server
from tests.waiting import wait_until


@pytest.fixture
def bench(tmp_path: Path, valkey: redis.Redis, valkey_server: Server) -> Bench:
    """A job of 100 good lines for model m."""
    return Bench(tmp_path, valkey_server, write_input(tmp_path / "in.jsonl", 100))


def losses(bench: Bench) -> list[tuple[int, str]]:
    """(seq, cause) of each loss in the journal."""
    with sqlite3.connect(bench.directory.journal_path) as journal:
        return journal.execute("SELECT seq, cause FROM loss ORDER BY seq").fetchall()


def test_a_vanished_worker_s_hold_expires_and_is_noted(bench: Bench, valkey_server: Server) -> None:
    vanished: list[int] = []

    def vanish_once(worker: FakeEngineWorker, job: str, batch: MicroBatch, token: str, got: int) -> None:
        if not vanished:
            vanished.append(batch.mb)
            worker.publish_some(job, batch, token, [0, 1])
        else:
            worker.publish_all(job, batch, token, got)

    with FakeEngineWorker(valkey_server, publish=vanish_once) as worker:
        outcome = bench.run()
    bench.check_whole(100)
    assert outcome.counts.redelivered == 1
    assert worker.claimed.count(vanished[0]) == 2
    assert losses(bench) == [(seq, "vanished") for seq in range(2, 8)], "what was published is not blamed"
    urgent = [mb for where, mb, _ in worker.hints if where == keys.queue("m", "d1")]
    assert urgent == [vanished[0]], "a redelivery goes before the whole window, to the pinned build"


def test_a_certificate_of_death_expires_at_once(tmp_path: Path, valkey: redis.Redis, valkey_server: Server) -> None:
    settings = quick_settings(valkey_server, expire_s=60.0)
    bench = Bench(tmp_path, valkey_server, write_input(tmp_path / "in.jsonl", 40), settings=settings)

    def die_once(worker: FakeEngineWorker, job: str, batch: MicroBatch, token: str, got: int) -> None:
        if len(worker.claimed) == 1:
            valkey.hset(keys.DIED, worker.incarnation, "self")
            worker.incarnation += "-next"
        else:
            worker.publish_all(job, batch, token, got)

    with FakeEngineWorker(valkey_server, publish=die_once):
        Running(bench.collector()).join(timeout_s=15)
    bench.check_whole(40)
    assert {cause for _, cause in losses(bench)} == {"self"}


def test_a_renewed_hold_is_left_alone(bench: Bench, valkey_server: Server) -> None:
    """A slow worker that renews keeps its hold for three times the expiry."""

    def slowly(worker: FakeEngineWorker, job: str, batch: MicroBatch, token: str, got: int) -> None:
        if len(worker.claimed) == 1:
            beats = iter(range(18))

            def renewed_long() -> bool:
                worker.claims.renew(job, [(batch.mb, token)])
                return next(beats, None) is None

            wait_until(lambda: renewed_long() or _pause(0.1), timeout_s=10, description="18 renewals")
        worker.publish_all(job, batch, token, got)

    with FakeEngineWorker(valkey_server, publish=slowly) as worker:
        outcome = bench.run()
    assert outcome.counts.redelivered == 0
    assert len(worker.claimed) == len(set(worker.claimed))


def _pause(duration_s: float) -> bool:
    """False, after `duration_s` seconds: the pace of a worker, not a wait for anything."""
    return threading.Event().wait(duration_s)


def test_a_flushed_redis_is_rebuilt_and_the_same_token_claims_again(
    bench: Bench, valkey: redis.Redis, valkey_server: Server
) -> None:
    reclaimed: list[str] = []

    def flush_once(worker: FakeEngineWorker, job: str, batch: MicroBatch, token: str, got: int) -> None:
        if len(worker.claimed) == 5:
            valkey.flushall(asynchronous=False)
            worker.show()

            def claim_again() -> bool:
                answer = worker.claims.claim(
                    job, batch.mb, token=token, worker=worker.incarnation, model="m", digest="d1"
                ).answer
                reclaimed.append(answer)
                return answer == "GO"

            wait_until(claim_again, timeout_s=10, description="the same token claims again")
        worker.publish_all(job, batch, token, got)

    with FakeEngineWorker(valkey_server, publish=flush_once) as worker:
        outcome = Running(bench.collector()).join(timeout_s=40)
    assert not worker.errors
    bench.check_whole(100)
    assert reclaimed[-1] == "GO"
    assert outcome.counts.redelivered == 0, "a flush blames nobody"


def test_a_lost_hint_is_sent_again(bench: Bench, valkey: redis.Redis, valkey_server: Server) -> None:
    bench.run(until="fed")
    with FakeEngineWorker(valkey_server, publish=lambda *_: None) as worker:
        lost = valkey.delete(*worker.queue_keys())
    assert lost
    with FakeEngineWorker(valkey_server):
        Running(bench.collector()).join(timeout_s=20)
    bench.check_whole(100)


def test_a_cut_tail_of_redis_log_is_offered_again(bench: Bench, valkey: redis.Redis, valkey_server: Server) -> None:
    """What the log's lost end held: some micro-batches, offered or being worked on, are absent at the same epoch."""

    def cut_once(worker: FakeEngineWorker, job: str, batch: MicroBatch, token: str, got: int) -> None:
        if len(worker.claimed) == 3:
            for mb in (batch.mb, batch.mb + 1, batch.mb + 2):
                valkey.srem(keys.open_set(job), str(mb))
                valkey.delete(keys.micro_batch(job, mb))
        else:
            worker.publish_all(job, batch, token, got)

    with FakeEngineWorker(valkey_server, publish=cut_once):
        Running(bench.collector()).join(timeout_s=40)
    bench.check_whole(100)


def publish_garbage(worker: FakeEngineWorker, job: str, batch: MicroBatch, token: str) -> None:
    """Publish position 0 as bytes that nobody can read."""
    worker.claims.publish(job, [Publication(batch.mb, token, 1, b"\x28\xb5garbage")])


def test_an_unreadable_entry_goes_to_quarantine_and_runs_again(bench: Bench, valkey_server: Server) -> None:
    def garbage_once(worker: FakeEngineWorker, job: str, batch: MicroBatch, token: str, got: int) -> None:
        if len(worker.claimed) == 2:
            publish_garbage(worker, job, batch, token)
        worker.publish_all(job, batch, token, got if len(worker.claimed) != 2 else got | 1)

    with FakeEngineWorker(valkey_server, publish=garbage_once):
        Running(bench.collector()).join(timeout_s=30)
    bench.check_whole(100)
    (kept,) = bench.directory.quarantine_path.iterdir()
    assert kept.read_bytes() == b"\x28\xb5garbage"


def test_what_is_never_readable_becomes_an_internal_error(bench: Bench, valkey_server: Server) -> None:
    def always_garbage(worker: FakeEngineWorker, job: str, batch: MicroBatch, token: str, got: int) -> None:
        if batch.mb == 2:
            publish_garbage(worker, job, batch, token)
            got |= 1
        worker.publish_all(job, batch, token, got)

    with FakeEngineWorker(valkey_server, publish=always_garbage):
        outcome = Running(bench.collector()).join(timeout_s=30)
    bench.check_whole(100)
    failed = [result for result in bench.results() if result["error"]]
    assert [(result["custom_id"], result["error"]["code"]) for result in failed] == [("r8", "internal_error")]
    assert failed[0]["response"]["status_code"] == 500
    assert outcome.exit_code == ExitCode.FOUND
    assert len(list(bench.directory.quarantine_path.iterdir())) == 3
    assert bench.directory.errors_path.read_text().count("\n") == 1


def test_a_foreign_result_never_reaches_the_journal(bench: Bench, valkey_server: Server) -> None:
    """An entry whose results are not of its micro-batch is as good as unreadable."""

    def mixed_up(worker: FakeEngineWorker, job: str, batch: MicroBatch, token: str, got: int) -> None:
        if len(worker.claimed) == 1:
            foreign = batch.requests[0]._replace(seq=99)
            other = batch.model_copy(update={"requests": (foreign, *batch.requests[1:])})
            worker.publish_all(job, other, token, got)
        else:
            worker.publish_all(job, batch, token, got)

    with FakeEngineWorker(valkey_server, publish=mixed_up):
        Running(bench.collector()).join(timeout_s=30)
    bench.check_whole(100)
    assert [result["id"] for result in bench.results()] == [f"{bench.job}-{seq}" for seq in range(100)]


def test_certificates_are_dropped_after_an_hour(
    bench: Bench, valkey: redis.Redis, valkey_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("producer.janitor.CERTIFICATE_S", 0.3)
    valkey.hset(keys.DIED, "long-dead", "outside")
    running = Running(bench.collector())
    wait_until(lambda: not valkey.exists(keys.DIED), timeout_s=10, description="the certificate is dropped")
    with FakeEngineWorker(valkey_server):
        running.join()


def test_who_could_not_look_starts_observing_anew(bench: Bench, valkey: redis.Redis, valkey_server: Server) -> None:
    """A collector that stood still for longer than a hold lasts must not take it away at its first look."""
    job = make_job(bench)
    janitor = Janitor(job, Receiver(job, Output(bench.directory.output_path, bench.directory.errors_path)))
    (mb, *_) = job.window.open
    token = "0" * 32
    assert job.claims.claim(job.id, mb, token=token, worker="w", model="m", digest="d").answer == "GO"

    def look(now_s: float) -> str:
        janitor.look(now_s=now_s)
        return job.claims.look(job.id).micro_batches[mb].st

    assert [look(0.0), look(0.2), look(0.4)] == ["HELD", "HELD", "HELD"]
    assert look(0.75) == "HELD", "0.35 s without a look: observed anew"
    assert [look(0.95), look(1.15), look(1.3)] == ["HELD", "HELD", "HELD"]
    assert look(1.4) == "READY"
    job.close()
    job.journal.close()


def make_job(bench: Bench) -> Job:
    """The bench's job as a collector has it at hand, fed by another one before."""
    bench.run(until="fed")
    journal = Journal.open(bench.directory.journal_path)
    job = Job(
        bench.directory,
        settings=bench.settings,
        client=bench.server.client(),
        journal=journal,
    )
    take(job)
    return job
