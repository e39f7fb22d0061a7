"""Cases of real-world trouble that are steps, not only inputs: kills, stops, slow work, idle workers.

Times are the cases' own, a few times shorter: what is asked of them is their ratio.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from datetime import datetime
from pathlib import Path

import pytest

from common import keys
from producer.journal import Journal
from tests.case_node import Node, node
from tests.faults.freezing import await_frozen, freezing_command
from tests.faults.tearing import tear
from tests.jobs import await_durable, only_job, wait_for_results, write_config
from tests.processes import (
    environment,
    live_workers,
    run_producer,
    started,
    worker_command,
)
from tests.servers import Server
from tests.waiting import wait_until

pytestmark = [pytest.mark.case, pytest.mark.kill]


def test_case_a18_killed_half_way(tmp_path: Path) -> None:
    """Producer, collector and one worker die at 20 lines; the same command does what is missing, and then nothing."""
    with node(tmp_path, "A18", "--sim-seconds", "0.02") as at:
        doomed, _ = at.worker(), at.worker()
        run = at.start("--batch-size", 4)
        wait_for_results(at.output, run, at_least=20, log=at.log)
        at.process_of(doomed).kill()
        lost = at.held_requests(batch_size=4)
        run.kill()
        run.wait()
        whole = at.output.read_bytes().rpartition(b"\n")[0]
        again = run_producer(*at.arguments("--batch-size", 4))
        at.check(again.returncode)
        content = at.output.read_bytes()
        assert content.startswith(whole), "whole lines written before the kill have changed"
        assert at.calls().total() <= 60 + lost, f"more ran again than the {lost} that were in flight"
        once_more = run_producer(*at.arguments("--batch-size", 4))
        at.check(once_more.returncode)
        assert at.output.read_bytes() == content


def test_case_a18_torn_last_line(tmp_path: Path) -> None:
    """Killed between writing and syncing, the file torn as by a crash: mended, twice, from the journal alone."""
    with node(tmp_path, "A18", "--sim-seconds", "0.02") as at:
        at.worker()
        arguments = at.arguments("--batch-size", 4)
        with started(freezing_command("producer.output:Output.sync", 5, *arguments), log=at.log) as frozen:
            await_frozen(frozen, words=at.log.read_text)
            frozen.kill()
            frozen.wait()
        written = at.output.read_bytes()
        with Journal.open(at.jobs / only_job(at.jobs) / "journal.sqlite") as journal:
            synced, _ = journal.synced_lengths()
        for zeros in (0, 300):
            at.output.write_bytes(written)
            tear(at.output, keep_lines=written[:synced].count(b"\n"), more_bytes=41, zeros=zeros)
            if not zeros:  # it dies once more, as soon as it has mended the file
                with started(
                    freezing_command("producer.receiver:Receiver.receive", 1, *arguments), log=at.log
                ) as frozen:
                    await_frozen(frozen, words=at.log.read_text)
                    assert at.output.read_bytes() == written
                    frozen.kill()
                    frozen.wait()
        at.check(run_producer(*arguments).returncode)
        assert at.output.read_bytes().startswith(written)
        assert at.calls().total() == 60, "what was published is not run again"


def one_by_one(*, each_s: float) -> tuple[object, ...]:
    """An engine of one place, in which each line takes so long whatever its length."""
    return "--sim-profile", "bakery", "--sim-places", 1, "--sim-seconds", each_s / 0.3


def test_case_a19_work_outlives_the_visibility_timeout(tmp_path: Path) -> None:
    """Five times as long; each line is asked of an engine once."""
    knobs = {"BAKEHOUSE_VISIBILITY_TIMEOUT_S": "1"}
    with node(tmp_path, "A19", *one_by_one(each_s=0.25), **knobs) as at:
        at.worker(), at.worker()
        began = time.monotonic()
        at.await_end(at.start("--batch-size", 20))
        assert time.monotonic() - began > 5, "the work did not outlive the timeout"
        assert set(at.calls().values()) == {1}
        assert at.calls().total() == 40
        assert {result["meta"]["deliveries"] for result in at.results()} == {1}


STOPS = int(os.environ.get("STOPS", "4"))
"""The case asks for ten."""


def test_case_a20_workers_are_told_to_stop(tmp_path: Path) -> None:
    """Time and again one of two, at a random moment, and replaced; then both at once, and new ones after a while."""
    chance = random.Random(20)
    with node(tmp_path, "A20", "--sim-places", 4, "--sim-seconds", "0.12", "--drain-timeout", "0.3") as at:
        fleet = [at.worker(), at.worker()]
        run = at.start("--batch-size", 4)
        moments = sorted(chance.sample(range(10, 120), STOPS))
        for moment in moments:
            await_durable(at.jobs, moment)
            stop(at, fleet.pop(chance.randrange(2)), others=1)
            fleet.append(at.worker())
        for supervisor in fleet:
            supervisor.send_signal(signal.SIGTERM)
        assert [supervisor.wait(30) for supervisor in fleet] == [0, 0]
        assert run.poll() is None, "nothing was left to do"
        assert not live_workers(at.server)
        wait_until(
            lambda: "no live worker" in at.log.read_text(), timeout_s=20, description="it says what it waits for"
        )
        at.worker(), at.worker()
        at.await_end(run)
        results = at.results()
        assert {result["meta"]["attempts"] for result in results} == {1}
        assert len({result["meta"]["worker"] for result in results}) > STOPS // 2
        with Journal.open(at.jobs / only_job(at.jobs) / "journal.sqlite") as journal:
            assert journal.checkpoint().counts.redelivered == 0, "a hold was lost, where it should be handed back"


def stop(at: Node, supervisor: "subprocess.Popen[bytes]", *, others: int) -> None:
    """It ends well within 30 s; what it held is another's within 10 s, not after any timeout."""
    name = next(key for key in live_workers(at.server) if is_below(at, key, supervisor))
    incarnation = name.removeprefix(keys.WORKER_PREFIX)
    supervisor.send_signal(signal.SIGTERM)
    assert supervisor.wait(30) == 0
    wait_until(lambda: not at.held()[incarnation], timeout_s=10, description="what it held is finished or another's")
    assert len(live_workers(at.server)) == others


def is_below(at: Node, key: str, supervisor: "subprocess.Popen[bytes]") -> bool:
    """Whether a heartbeat is of the worker below `supervisor`."""
    return int(at.server.client().hget(key, "pid") or 0) == at.process_of(supervisor).pid


BATCH_S = 2.0
"""A micro-batch of five lines, one after the other."""


def test_case_a24_no_worker_hoards_while_another_idles(tmp_path: Path) -> None:
    """Eight micro-batches and two workers of one place: done in the time of four and one, and both work to the end."""
    with node(tmp_path, "A24", *one_by_one(each_s=BATCH_S / 5)) as at:
        at.worker(), at.worker()
        run = at.start("--batch-size", 5)
        most = watch_holds(at, run)
        at.await_end(run)
        assert max(most.values()) <= 2, "one running and one reserved at most"
        ends = finished_by_worker(at)
        assert len(ends) == 2
        assert max(ends.values()) - min(ends.values()) <= 1.5 * BATCH_S, "one idled while the other had work"
        first = min(seconds_of(result["meta"]["started_at"]) for result in at.results())
        assert max(ends.values()) - first <= 5 * BATCH_S


def test_case_a24_a_late_worker_gets_work(tmp_path: Path) -> None:
    with node(tmp_path, "A24", *one_by_one(each_s=BATCH_S / 5)) as at:
        at.worker()
        run = at.start("--batch-size", 5)
        await_durable(at.jobs, 5)
        before = set(live_workers(at.server))
        at.worker()
        (late,) = set(live_workers(at.server)) - before
        name = late.removeprefix(keys.WORKER_PREFIX)
        wait_until(lambda: at.held()[name], timeout_s=BATCH_S, description="the late worker has work")
        at.await_end(run)
        assert finished_by_worker(at).keys() >= {name}


def watch_holds(at: Node, run: "subprocess.Popen[bytes]") -> Counter[str]:
    """The most that each worker ever held, until the run ends."""
    most: Counter[str] = Counter()

    def look() -> bool:
        for name, number in at.held().items():
            most[name] = max(most[name], number)
        return run.poll() is not None

    wait_until(look, timeout_s=60, description="the run ends")
    return most


def seconds_of(moment: str) -> float:
    """A wall-clock time of a result, in seconds."""
    return datetime.fromisoformat(moment).timestamp()


def finished_by_worker(at: Node) -> dict[str, float]:
    """When each worker finished its last line, by the wall clock."""
    ends: dict[str, float] = {}
    for result in at.results():
        meta = result["meta"]
        ends[meta["worker"]] = max(ends.get(meta["worker"], 0.0), seconds_of(meta["finished_at"]))
    return ends


def test_case_a25_workers_are_killed(tmp_path: Path) -> None:
    """Its first half without a GPU: what was in flight runs again, nothing is recorded as failed, each is replaced."""
    with node(tmp_path, "A25", "--sim-places", 8, "--sim-seconds", "0.05") as at:
        supervisor = at.worker()
        run = at.start("--batch-size", 8)
        for least in (30, 90):
            await_durable(at.jobs, least)
            wait_until(lambda: at.held_requests(batch_size=8), timeout_s=10, description="something is in flight")
            at.process_of(supervisor).kill()
            wait_until(lambda: not live_workers(at.server), timeout_s=10, description="the dead one is certified")
            wait_until(lambda: live_workers(at.server), timeout_s=30, description="a new one is up")
        at.await_end(run)
        assert supervisor.poll() is None
        assert len({result["meta"]["worker"] for result in at.results()}) == 3
        assert {result["meta"]["attempts"] for result in at.results()} == {1}


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_case_a25_another_pool_is_refused_in_one_line(valkey_server: Server, pool: str) -> None:
    command = [sys.executable, "-m", "celery", "-A", "worker.app", "worker", "--pool", pool]
    env = environment(BAKEHOUSE_REDIS_URL=valkey_server.url)
    ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert ended.stderr.strip().splitlines() == [
        "worker: Celery's own worker command cannot serve an engine - give: worker start"
    ]


def test_case_a26_nobody_can_start(tmp_path: Path) -> None:
    """The worker says what it lacks and ends; the job says that it has none, and ends resumable, with no result."""
    with node(tmp_path, "A26") as at:
        flags = ("start", "--redis-url", at.server.url, "--engine", "vllm", "--model", tmp_path / "no-such-model")
        with started(worker_command(*flags), log=tmp_path / "worker.log") as worker:
            assert worker.wait(60) not in (0, 1)
        lines = (tmp_path / "worker.log").read_text().splitlines()
        said = [line for line in lines if "there is no model folder" in line and "no-such-model" in line]
        assert len(said) == 1, "one line says what is missing"
        config = write_config(tmp_path / "impatient.yaml", give_up_after_s=6)
        ended = run_producer(*at.arguments("--config", config))
        at.check(ended.returncode)
        assert ended.returncode == 3
        assert "no live worker" in ended.stderr
        assert f"continue: producer resume {only_job(at.jobs)}" in ended.stderr
