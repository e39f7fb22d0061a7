"""`producer wait` on a job's own host and elsewhere: collectors are killed, Redis goes away, and so does it."""

import json
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.jobs import await_durable, check_whole, write_requests
from tests.processes import producer_command, run_producer, started, started_worker
from tests.servers import Server
from tests.waiting import wait_until

JOB = "night"
ROWS = 60
SLOW = ("--engine", "sim", "--model", "m", "--sim-places", 4, "--sim-seconds", 0.04)


class Place:
    """A job's own host and another one, over one server."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self.jobs = folder / "jobs"
        self.output = folder / "out.jsonl"
        self.own = ("--redis-url", server.url, "--jobs", self.jobs)
        self.own_without_redis = ("--redis-url", f"unix://{folder}/nobody.sock", "--jobs", self.jobs)
        self.elsewhere = ("--redis-url", server.url, "--jobs", folder / "none")

    def enqueue(self, *arguments: object) -> None:
        source = write_requests(self.folder / "in.jsonl", ROWS, model="m")
        with source.open("a") as file:
            file.write("not json\n" if "bad" in arguments else "")
        given = [each for each in arguments if each != "bad"]
        ended = run_producer("enqueue", source, "-o", self.output, "--job-id", JOB, *given, *self.own)
        assert ended.returncode == 0, ended.stderr

    @contextmanager
    def collecting(self, name: str = "collect") -> Iterator[subprocess.Popen[bytes]]:
        with started(producer_command("collect", JOB, *self.own), log=self.folder / f"{name}.log") as collector:
            yield collector

    @contextmanager
    def waiting(self, *arguments: object, name: str, **knobs: str) -> Iterator["Waiter"]:
        log = self.folder / f"{name}.log"
        with started(producer_command("wait", JOB, *arguments), log=log, **knobs) as process:
            yield Waiter(process, log)


class Waiter:
    """A `producer wait` and what it has said."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self.log = log

    def await_said(self, words: str, *, timeout_s: float = 20) -> None:
        wait_until(lambda: words in self.log.read_text(), timeout_s=timeout_s, description=f"it says {words!r}")

    def end(self, timeout_s: float = 60) -> int:
        return self.process.wait(timeout_s)


@pytest.fixture
def place(own_server: Server, tmp_path: Path) -> Place:
    return Place(own_server, tmp_path)


@pytest.mark.kill
def test_it_ends_as_the_job_does_wherever_it_waits_and_whatever_is_killed(place: Place) -> None:
    """The first collector is killed in the middle; those who wait go on waiting, and say who is missing."""
    with started_worker(place.server, *SLOW, log=place.folder / "worker.log"), ExitStack() as open_:
        place.enqueue("bad")
        waiters = [
            open_.enter_context(place.waiting(*where, name=name))
            for name, where in (
                ("own", place.own),
                ("without-redis", place.own_without_redis),
                ("elsewhere", place.elsewhere),
            )
        ]
        waiters[1].await_said(f"no collector is alive: on host {socket.gethostname()}, producer resume {JOB}")
        with place.collecting() as collector:
            await_durable(place.jobs, 10)
            collector.kill()
            collector.wait()
        assert [waiter.process.poll() for waiter in waiters] == [None, None, None]
        with place.collecting("second") as collector:
            assert collector.wait(60) == 1
        assert [waiter.end(15) for waiter in waiters] == [1, 1, 1]
    reports = [
        json.loads(run_producer("wait", JOB, "--json", *where).stdout)
        for where in (place.own, place.own_without_redis, place.elsewhere)
    ]
    assert reports[0] == reports[1] == reports[2]
    assert reports[0]["failures"] == {"invalid_json": 1}
    assert (reports[0]["succeeded"], reports[0]["exit_code"], reports[0]["state"]) == (ROWS, 1, "completed")


def test_redis_that_goes_away_and_comes_back_empty(place: Place) -> None:
    """It waits before there is a worker: a job that is short would be over before Redis is taken away."""
    place.enqueue()
    with place.waiting(*place.elsewhere, name="wait") as waiter:
        waiter.await_said("waiting for job")
        with started_worker(place.server, *SLOW, log=place.folder / "worker.log"), place.collecting() as collector:
            await_durable(place.jobs, 4)
            place.server.kill()
            waiter.await_said("Redis does not answer")
            shutil.rmtree(place.folder / "data")
            place.server.start()
            assert collector.wait(60) == 0
            assert waiter.end(15) == 0
    check_whole(place.output, ROWS)


def test_it_gives_up_on_a_job_that_it_cannot_see(place: Place) -> None:
    place.enqueue("--model", "m")
    with place.waiting(*place.elsewhere, name="wait", BAKEHOUSE_GIVE_UP_AFTER_S="3") as waiter:
        waiter.await_said("waiting for job")
        place.server.kill()
        assert waiter.end(20) == 3
    assert f"continue: producer wait {JOB}" in waiter.log.read_text()


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_it_alone(place: Place, signum: signal.Signals) -> None:
    place.enqueue("--model", "m")
    with place.waiting(*place.elsewhere, name="wait") as waiter:
        waiter.await_said("waiting for job")
        waiter.process.send_signal(signum)
        assert waiter.end(10) == 130
    assert "the job itself goes on" in waiter.log.read_text()
    assert "Traceback" not in waiter.log.read_text()


def test_what_it_does_not_wait_for(place: Place) -> None:
    unknown = run_producer("wait", "nobody", *place.elsewhere)
    assert (unknown.returncode, "no job nobody" in unknown.stderr) == (3, True)
    nowhere = run_producer("wait", JOB, "--redis-url", f"unix://{place.folder}/no.sock", "--jobs", place.folder)
    assert (nowhere.returncode, "Redis cannot be reached" in nowhere.stderr) == (3, True)
    assert run_producer("wait", JOB, "--timeout", "soon", *place.own).returncode == 2
    place.enqueue("--model", "m")
    for where in (place.own_without_redis, place.elsewhere):
        early = run_producer("wait", JOB, "--timeout", "0", *where)
        assert (early.returncode, f"job {JOB} is in_progress after 0 s" in early.stderr) == (3, True), early.stderr
    late = run_producer("wait", JOB, "--timeout", "1.5s", *place.own)
    assert (late.returncode, "no collector is alive" in late.stderr) == (3, True), late.stderr


def test_a_pause_ends_it_with_the_reason_and_a_cancel_with_1(place: Place) -> None:
    place.enqueue("--model", "m")
    with place.waiting(*place.own, name="own") as own, place.waiting(*place.elsewhere, "--json", name="far") as far:
        far.await_said("waiting for job")
        assert run_producer("pause", JOB, *place.own).returncode == 0
        assert (own.end(20), far.end(20)) == (3, 3)
    shown = far.log.read_text()
    report = json.loads(shown[shown.index("{") : shown.rindex("}") + 1])
    assert (report["state"], report["fed"], report["exit_code"]) == ("paused", ROWS, 3)
    for waiter in (own, far):
        assert "paused: asked for by producer pause" in waiter.log.read_text()
        assert waiter.log.read_text().rstrip().endswith(f"continue: producer resume {JOB}")
    assert run_producer("cancel", JOB, *place.own).returncode == 0
    for where in (place.own, place.elsewhere):
        over = run_producer("wait", JOB, "--json", *where)
        summary = json.loads(over.stdout)
        assert (over.returncode, summary["state"], summary["failures"]) == (1, "cancelled", {"cancelled": ROWS})
