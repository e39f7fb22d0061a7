"""Pause and resume with real processes, from other hosts and without Redis; whoever is killed in the middle, it holds.

Another host is another folder of jobs: all it has of a job is what Redis says.
"""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from common.claims import Claims
from tests.faults.freezing import frozen
from tests.jobs import await_durable, check_whole, durable_results, only_job, wait_for_results, write_requests
from tests.processes import (
    await_gone,
    descendants,
    producer_command,
    read_results,
    run_producer,
    started,
    started_worker,
)
from tests.run_family import await_family
from tests.servers import VALKEY, Server
from tests.waiting import wait_until

ROWS = 100
JOB = "j"
SLOW = ("--engine", "sim", "--sim-seconds", "0.1", "--sim-places", "8")
"""A request takes 0.8 s, ten are done in a second."""


def still(pid: int) -> AbstractContextManager[None]:
    """The process `pid` and all that descend from it stand still: however long a command takes, the job is not done."""
    return frozen(*(process.pid for process in reversed(descendants(pid))), pid)


class Scene:
    """A server, one slow worker, and a job of 100 requests on its own host."""

    def __init__(self, folder: Path, server: Server, worker: "subprocess.Popen[bytes]") -> None:
        self.folder, self.server, self.worker = folder, server, worker
        self.source, self.output = write_requests(folder / "in.jsonl", ROWS, model="m"), folder / "out.jsonl"
        self.here = ("--redis-url", server.url, "--jobs", folder / "jobs")
        self.elsewhere = ("--redis-url", server.url, "--jobs", folder / "another-host")
        self.job = (self.source, "-o", self.output, "--job-id", JOB, "--batch-size", "4", *self.here)
        self.claims = Claims(server.client())

    @contextmanager
    def running(self, *arguments: object, at_least: int = 10) -> Iterator["subprocess.Popen[bytes]"]:
        """`producer ARGUMENTS`, once the ordered file has so many lines."""
        log = self.folder / f"{arguments[0]}.log"
        with started(producer_command(*arguments), log=log) as process:
            wait_for_results(self.output, process, at_least=at_least, log=log)
            yield process

    def said(self, verb: str) -> str:
        """What the process of `verb` has said so far, as one line."""
        return " ".join((self.folder / f"{verb}.log").read_text().split())

    def held(self) -> int:
        """Micro-batches that a worker holds."""
        return sum(seen.st == "HELD" for seen in self.claims.look(JOB).micro_batches.values())

    def status(self) -> dict[str, Any]:
        """As another host sees the job."""
        found = json.loads(run_producer("status", JOB, *self.elsewhere, "--json").stdout)["jobs"]
        return dict(found[0])

    def check_refused(self, *arguments: object) -> None:
        """Whoever goes on with it hears why it is paused, once nothing runs any more."""
        again = run_producer(*arguments)
        assert again.returncode == 3, again.stderr
        assert "paused: asked for by producer pause" in again.stderr
        assert f"continue: producer resume {JOB}" in again.stderr

    def check_at_rest(self) -> int:
        """It is paused and nothing runs, and every host sees that; returns how many results there are."""
        self.check_refused("run", *self.job)
        assert self.claims.look(JOB).state == "paused"
        assert not self.held()
        done = len(read_results(self.output))
        assert done < ROWS
        status = self.status()
        assert (status["state"], status["done"]) == ("paused", done)
        assert "asked for by producer pause" in status["reason"]
        return done


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    server = Server(VALKEY, tmp_path / "data").start()
    with started_worker(server, *SLOW, "--model", "m", log=tmp_path / "worker.log") as worker:
        yield Scene(tmp_path, server, worker)
    server.stop()


def test_paused_and_resumed_from_another_host(scene: Scene) -> None:
    with scene.running("run", *scene.job) as run:
        with still(scene.worker.pid):
            paused = run_producer("pause", JOB, *scene.elsewhere)
        assert paused.returncode == 0, paused.stderr
        assert "job j is paused: asked for by producer pause" in paused.stderr
        assert run.wait(60) == 3
    assert "paused: asked for by producer pause" in scene.said("run")
    assert f"continue: producer resume {JOB}" in scene.said("run")
    scene.check_refused("collect", JOB, *scene.here)
    scene.check_refused("enqueue", *scene.job)
    done = scene.check_at_rest()

    resumed = run_producer("resume", JOB, *scene.elsewhere)
    assert resumed.returncode == 3, "nobody is there to go on with it"
    for fact in ("no collector of it is alive", str(scene.folder / "jobs" / JOB), f"producer resume {JOB}"):
        assert fact in resumed.stderr
    assert len(read_results(scene.output)) == done
    collected = run_producer("collect", JOB, *scene.here)
    assert collected.returncode == 0, f"the wish stands: {collected.stderr}"
    check_whole(scene.output, ROWS)
    for verb in ("pause", "cancel"):
        late = run_producer(verb, JOB, *scene.elsewhere)
        assert (late.returncode, "job j is completed" in late.stderr) == (2, True), late.stderr


def test_a_service_keeps_a_paused_job_and_takes_it_up_again(scene: Scene) -> None:
    assert run_producer("enqueue", *scene.job).returncode == 0
    with scene.running("collect", "--all", "--follow", *scene.here) as service:
        with still(scene.worker.pid):
            assert run_producer("pause", JOB, *scene.elsewhere).returncode == 0
        wait_until(lambda: not scene.held(), timeout_s=30, description="what ran has ended")
        scene.server.client().flushall()
        wait_until(lambda: scene.claims.look(JOB).state == "paused", timeout_s=30, description="paused all the same")
        assert not scene.held()
        resumed = run_producer("resume", JOB, *scene.elsewhere)
        assert resumed.returncode == 0, resumed.stderr
        assert "job j is in progress" in resumed.stderr
        wait_until(lambda: "j completed" in scene.said("collect"), timeout_s=60, description="it is done")
        assert service.poll() is None
    check_whole(scene.output, ROWS)


def test_killed_in_the_middle_of_a_pause_and_of_a_resume(scene: Scene) -> None:
    with scene.running("run", *scene.job) as run:
        wait_until(scene.held, timeout_s=30, description="something is held")
        with still(scene.worker.pid):
            assert run_producer("pause", JOB, *scene.elsewhere).returncode == 0
            assert run.poll() is None, "it waits for what is held"
            run.kill()
            run.wait()
    done = scene.check_at_rest()

    with scene.running("resume", JOB, *scene.here, at_least=done + 10) as resume:
        with still(scene.worker.pid):
            also = run_producer("resume", JOB, *scene.here)
        assert (also.returncode, f"pid {resume.pid} works on it" in also.stderr) == (0, True), also.stderr
        resume.kill()
        resume.wait()
    assert run_producer("run", *scene.job).returncode == 0, "it was resumed"
    check_whole(scene.output, ROWS)


def test_a_wish_outlives_who_left_it(scene: Scene) -> None:
    with scene.running("run", *scene.job) as run:
        os.kill(run.pid, signal.SIGSTOP)
        with started(producer_command("pause", JOB, *scene.elsewhere), log=scene.folder / "pause.log") as pause:
            wait_until(lambda: scene.claims.look(JOB).want, timeout_s=60, description="it is left")
            pause.kill()
            pause.wait()
        os.kill(run.pid, signal.SIGCONT)
        assert run.wait(60) == 3
    done = scene.check_at_rest()
    assert run_producer("pause", JOB, *scene.elsewhere).returncode == 3, "no collector is there to hear another"
    assert len(read_results(scene.output)) == done
    assert run_producer("resume", JOB, *scene.here).returncode == 0, "what is typed here comes last"
    check_whole(scene.output, ROWS)


def test_paused_where_no_process_has_the_job(scene: Scene) -> None:
    with still(scene.worker.pid):
        assert run_producer("enqueue", *scene.job).returncode == 0
        paused = run_producer("pause", JOB, *scene.here)
    assert (paused.returncode, "job j is paused" in paused.stderr) == (0, True), paused.stderr
    assert scene.claims.look(JOB).state == "paused"
    assert run_producer("pause", JOB, *scene.here).returncode == 0, "and again"
    scene.check_at_rest()
    assert run_producer("resume", JOB, *scene.here).returncode == 0
    check_whole(scene.output, ROWS)


def test_a_job_with_its_own_server_is_paused_from_another_shell(tmp_path: Path) -> None:
    source, output, jobs = write_requests(tmp_path / "in.jsonl", ROWS), tmp_path / "out.jsonl", tmp_path / "jobs"
    arguments, log = ("run", source, "-o", output, "--jobs", jobs, "--batch-size", "4", *SLOW), tmp_path / "run.log"
    with started(producer_command(*arguments), log=log) as run:
        wait_for_results(output, run, at_least=10, log=log)
        below = descendants(run.pid)
        with still(await_family(run)["supervisor"]):
            paused = run_producer("pause", only_job(jobs), "--jobs", jobs)
        assert paused.returncode == 0, paused.stderr
        assert run.wait(60) == 3, log.read_text()
        await_gone(below)
    assert "asked for by producer pause" in log.read_text()
    assert durable_results(jobs) == len(read_results(output)) < ROWS
    again = run_producer(*arguments)
    assert again.returncode == 3
    assert "asked for by producer pause" in again.stderr
    assert "embedded" not in again.stderr, "nothing is started for it"
    resume, log = producer_command("resume", only_job(jobs), "--jobs", jobs), tmp_path / "resume.log"
    done = durable_results(jobs)
    with started(resume, log=log) as resumed:
        await_durable(jobs, done + 4)
        resumed.kill()
        resumed.wait()
    ended = run_producer("resume", only_job(jobs), "--jobs", jobs)
    assert ended.returncode == 0, ended.stderr
    check_whole(output, ROWS)


def test_a_failing_deploy_pauses_its_job(tmp_path: Path) -> None:
    source, output, jobs = write_requests(tmp_path / "in.jsonl", 120), tmp_path / "out.jsonl", tmp_path / "jobs"
    broken = ("--engine", "sim", "--sim-seconds", "0.05", "--sim-places", "8", "--sim-pattern", "fail=say")
    arguments = ("run", source, "-o", output, "--jobs", jobs, "--max-retries", "0", "--batch-size", "4", *broken)
    ended = run_producer(*arguments)
    assert ended.returncode == 3, ended.stderr
    assert "results are 5xx (engine_error" in ended.stderr
    assert f"continue: producer resume {only_job(jobs)}" in ended.stderr
    assert 50 <= len(read_results(output)) < 120
    everything = run_producer(*arguments, "--pause-above", "1", "--fresh", "--overwrite")
    assert everything.returncode == 1, everything.stderr
    assert len(read_results(output)) == 120
