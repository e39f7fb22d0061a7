"""A worker with a suspect: it waits for an empty engine, is armed, runs alone; what arrives meanwhile goes back."""

from pathlib import Path

import pytest
import redis

from common.claim_types import Seen
from tests.servers import Server
from tests.waiting import wait_until
from tests.worker_parts import EPOCH, JOB, Job, WorkerParts, make_batch
from tests.worker_process import started_worker
from worker import solitude
from worker.options import SimOptions

LONG = 10_000
NORMAL, SUSPECT, NEXT = 0, 1, 2


def seen(job: Job, mb: int) -> Seen:
    return job.claims.look(JOB).micro_batches[mb]


def await_in_flight(worker: WorkerParts, number: int) -> None:
    wait_until(lambda: worker.admission.in_flight == number, timeout_s=5, description=f"{number} requests in flight")


def await_armed(job: Job, mb: int) -> None:
    wait_until(lambda: seen(job, mb).armed, timeout_s=5, description="the suspect is armed")


def bring_elsewhere(job: Job, mb: int, mask: int = 1) -> None:
    """Others bring what is missing of `mb`: its holder stops."""
    job.claims.mark(JOB, mb, epoch=EPOCH, mask=mask)


def test_a_suspect_waits_for_an_empty_engine_and_runs_armed(job: Job, worker: WorkerParts) -> None:
    job.offer(make_batch(2, tokens=[LONG, LONG]), make_batch(1, mb=SUSPECT, tokens=[LONG], kind="solo"))
    worker.take(NORMAL)
    await_in_flight(worker, 2)
    done = worker.take(SUSPECT)
    wait_until(lambda: seen(job, SUSPECT).st == "HELD", timeout_s=5, description="the suspect is claimed")
    first = seen(job, SUSPECT)
    wait_until(lambda: seen(job, SUSPECT).beat >= first.beat + 2, timeout_s=5, description="it is renewed")
    assert not seen(job, SUSPECT).armed
    assert not worker.admission.has_room, "what else there is stays in Redis"
    assert worker.engine.unfinished() == 2
    bring_elsewhere(job, NORMAL, 0b11)
    await_armed(job, SUSPECT)
    await_in_flight(worker, 1)
    assert [hold.mb for hold in worker.keeper.holds()] == [SUSPECT]
    bring_elsewhere(job, SUSPECT)
    assert done.result(10)
    assert worker.admission.has_room


def test_a_suspect_s_result_is_as_good_as_any(job: Job, worker: WorkerParts) -> None:
    job.offer(make_batch(1, mb=SUSPECT, kind="solo"))
    assert worker.take(SUSPECT).result(10)
    assert job.stage(SUSPECT) == "FULL"
    assert [result.status for result in job.results()] == [200]


def test_what_arrives_while_a_suspect_is_alone_goes_back(job: Job, worker: WorkerParts) -> None:
    job.offer(make_batch(2), make_batch(1, mb=SUSPECT, tokens=[LONG], kind="solo"))
    done = worker.take(SUSPECT)
    await_armed(job, SUSPECT)
    assert not worker.take(NORMAL).result(5), "the hint is handed back"
    assert job.stage(NORMAL) == "READY"
    wait_until(lambda: worker.engine.unfinished() == 1, timeout_s=5, description="the suspect runs alone")
    bring_elsewhere(job, SUSPECT)
    assert done.result(10)
    assert worker.take(NORMAL).result(10)
    assert job.stage(NORMAL) == "FULL"


def test_suspects_run_one_after_the_other(job: Job, worker: WorkerParts) -> None:
    for mb in (SUSPECT, NEXT):
        job.offer(make_batch(1, mb=mb, tokens=[LONG], kind="solo"))
    first = worker.take(SUSPECT)
    wait_until(lambda: seen(job, SUSPECT).st == "HELD", timeout_s=5, description="the first is claimed")
    await_armed(job, SUSPECT)
    bring_elsewhere(job, SUSPECT)
    wait_until(lambda: not worker.keeper.holds(), timeout_s=5, description="the first is over")
    second = worker.take(NEXT)
    assert not first.done(), "the gate is still closed, for the next one"
    await_armed(job, NEXT)
    assert first.result(5)
    assert not worker.admission.has_room
    bring_elsewhere(job, NEXT)
    assert second.result(5)


def test_a_suspect_that_waits_too_long_goes_back(
    job: Job, worker: WorkerParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(solitude, "LONGEST_WAIT_S", 0.3)
    job.offer(make_batch(1, tokens=[LONG]), make_batch(1, mb=SUSPECT, kind="solo"))
    worker.take(NORMAL)
    await_in_flight(worker, 1)
    assert worker.take(SUSPECT).result(10)
    assert (job.stage(NORMAL), job.stage(SUSPECT)) == ("HELD", "READY")
    assert worker.engine.unfinished() == 1
    assert worker.admission.has_room


def test_a_suspect_that_waits_when_the_worker_leaves_goes_back(job: Job, worker: WorkerParts) -> None:
    job.offer(make_batch(1, tokens=[LONG]), make_batch(1, mb=SUSPECT, kind="solo"))
    worker.take(NORMAL)
    await_in_flight(worker, 1)
    done = worker.take(SUSPECT)
    wait_until(lambda: seen(job, SUSPECT).st == "HELD", timeout_s=5, description="the suspect is claimed")
    worker.ending.leave()
    assert not done.result(5), "its hint is handed back too"
    assert job.stage(SUSPECT) == "READY"


@pytest.mark.parametrize("loss", ["closed", "expired", "cancelling"])
def test_a_suspect_lost_while_it_waits_is_never_run(job: Job, worker: WorkerParts, loss: str) -> None:
    job.offer(make_batch(1, tokens=[LONG]), make_batch(1, mb=SUSPECT, kind="solo"))
    worker.take(NORMAL)
    await_in_flight(worker, 1)
    done = worker.take(SUSPECT)
    wait_until(lambda: seen(job, SUSPECT).st == "HELD", timeout_s=5, description="the suspect is claimed")
    if loss == "closed":
        job.claims.close(JOB, [SUSPECT], epoch=EPOCH)
    elif loss == "cancelling":
        job.claims.state(JOB, epoch=EPOCH, state="cancelling")
    else:
        wait_until(lambda: expire(job), timeout_s=5, description="the hold is expired between two renewals")
    assert done.result(10)
    assert job.stage(SUSPECT) == (None if loss == "closed" else "READY")
    assert job.seqs() == []


def expire(job: Job) -> bool:
    """Take the suspect from its holder, if that one does not renew it in this very moment."""
    now = seen(job, SUSPECT)
    answer = job.claims.expire(JOB, SUSPECT, epoch=EPOCH, token=now.token or "", beat=now.beat)
    return answer == "OK"


def test_a_refused_arming_runs_nothing(job: Job, worker: WorkerParts, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hold was lost in the moment in which the engine became empty, and no renewal has said so yet."""
    job.offer(make_batch(1, mb=SUSPECT, kind="solo"))
    arm = worker.keeper._claims.arm
    refused: list[bool] = []

    def arm_late(name: str, mb: int, *, token: str) -> bool:
        job.claims.close(JOB, [mb], epoch=EPOCH)
        refused.append(not arm(name, mb, token=token))
        return not refused[-1]

    monkeypatch.setattr(worker.keeper._claims, "arm", arm_late)
    assert worker.take(SUSPECT).result(10)
    assert refused == [True]
    assert (job.stage(SUSPECT), job.seqs()) == (None, [])


def test_celery_brings_nothing_while_a_suspect_is_alone(
    valkey: redis.Redis, valkey_server: Server, tmp_path: Path
) -> None:
    """Also where the queue was empty when the suspect came, so that Celery had asked for the next message already."""
    job = Job(valkey)
    job.offer(make_batch(2), make_batch(1, mb=SUSPECT, tokens=[LONG], kind="solo"), make_batch(1, mb=NEXT, kind="solo"))
    with started_worker(valkey_server, tmp_path / "log", sim=SimOptions(), BAKEHOUSE_RENEW_S="0.2") as worker:
        worker.hint(SUSPECT, n=1)
        await_armed(job, SUSPECT)
        worker.hint(NORMAL, NEXT, n=2)
        armed = seen(job, SUSPECT)
        wait_until(lambda: seen(job, SUSPECT).beat >= armed.beat + 5, timeout_s=10, description="five renewals")
        assert (job.stage(NORMAL), job.stage(NEXT)) == ("READY", "READY")
        bring_elsewhere(job, SUSPECT)
        wait_until(lambda: job.stage(NORMAL) == job.stage(NEXT) == "FULL", timeout_s=10, description="all have run")
        assert worker.process.poll() is None


def test_what_it_has_done_is_known_before_a_suspect_may_end_it(
    valkey: redis.Redis, valkey_server: Server, tmp_path: Path
) -> None:
    """Or its supervisor would take each death for one without a result between."""
    job = Job(valkey)
    job.offer(make_batch(8), make_batch(1, mb=SUSPECT, tokens=[LONG], kind="solo"))
    rarely = "600"
    with started_worker(valkey_server, tmp_path / "log", sim=SimOptions(), BAKEHOUSE_PRESENCE_S=rarely) as worker:
        worker.hint(NORMAL, n=8)
        wait_until(lambda: job.stage(NORMAL) == "FULL", timeout_s=10, description="eight results are out")
        worker.hint(SUSPECT, n=1)
        await_armed(job, SUSPECT)
        assert worker.presence()["results"] == "8"
