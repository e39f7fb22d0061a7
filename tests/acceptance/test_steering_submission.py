"""The same command twice, also at the same moment: one job, each request run once; and what a job is told to carry."""

import json
import os
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis

from producer.job_directory import JobDirectory
from tests.jobs import check_whole, durable_results, only_job, write_requests
from tests.processes import environment, producer_command, run_producer, started, started_worker
from tests.servers import Server
from tests.waiting import wait_until

ROWS = 8
RACES = 3
"""Of each kind."""


class Race:
    """The same command, started twice at the same moment."""

    def __init__(self, folder: Path, *arguments: object) -> None:
        folder.mkdir()
        self.folder = folder
        self.jobs, self.output = folder / "jobs", folder / "out.jsonl"
        source = write_requests(folder / "in.jsonl", ROWS, model="m")
        verb, *rest = arguments
        command = producer_command(verb, source, "-o", self.output, "--jobs", self.jobs, *rest)
        self.runners = [
            subprocess.Popen(
                command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0
            )
            for _ in range(2)
        ]

    def close(self) -> None:
        """End what still runs."""
        for runner in self.runners:
            runner.kill()
            runner.wait()

    def await_loser(self) -> str:
        """Block until one of the two has been refused; what it said. It names the other one, which goes on."""
        wait_until(
            lambda: any(runner.poll() is not None for runner in self.runners),
            timeout_s=60,
            description="one of two is refused",
        )
        loser, winner = sorted(self.runners, key=lambda runner: runner.poll() is None)
        said = loser.communicate()[1]
        assert (loser.returncode, winner.poll()) == (2, None), said
        assert f"host {os.uname().nodename}, pid {winner.pid}" in said
        self.runners = [winner]
        return said

    def check(self, *, code: int = 0) -> None:
        """Those left end well, and there is one job, which is whole."""
        for runner in self.runners:
            said = runner.communicate(timeout=60)[1]
            assert runner.returncode == code, said
        assert len(JobDirectory.list_all(self.jobs)) == 1
        assert not list(self.jobs.glob(".draft-*"))
        check_whole(self.output, ROWS)


def count_calls(file: Path) -> int:
    """Requests that simulated engines have begun."""
    return len(file.read_bytes().splitlines())


def test_two_runs_at_once_on_a_fleet(valkey: redis.Redis, valkey_server: Server, tmp_path: Path) -> None:
    """No worker is there at first, so that the winner still runs when the loser looks."""
    calls = tmp_path / "calls"
    with ExitStack() as open_:
        races = []
        for number in range(RACES):
            named = ("--job-id", f"race-{number}") if number % 2 else ()
            races.append(Race(tmp_path / str(number), "run", "--redis-url", valkey_server.url, *named))
            open_.callback(races[-1].close)
            races[-1].await_loser()
        sim = ("--engine", "sim", "--model", "m")
        with started_worker(valkey_server, *sim, log=tmp_path / "worker.log", BAKEHOUSE_SIM_CALLS=str(calls)):
            for race in races:
                race.check()
    assert count_calls(calls) == RACES * ROWS


def test_two_runs_at_once_that_bring_their_own_server(tmp_path: Path) -> None:
    race = Race(tmp_path / "race", "run", "--engine", "sim", "--sim-seconds", 0.4)
    try:
        race.await_loser()
        race.check()
    finally:
        race.close()


def test_two_enqueues_at_once(valkey: redis.Redis, valkey_server: Server, tmp_path: Path) -> None:
    """Both print the one job's id: `JOB=$(producer enqueue ...)` is right in both shells."""
    where = ("--redis-url", valkey_server.url)
    calls = tmp_path / "calls"
    races = []
    for number in range(RACES):
        named = ("--job-id", f"race-{number}") if number % 2 else ()
        race = Race(tmp_path / str(number), "enqueue", "--model", "m", *where, *named)
        said = [runner.communicate(timeout=60) for runner in race.runners]
        assert [runner.returncode for runner in race.runners] == [0, 0], said
        assert {out for out, _ in said} == {f"{only_job(race.jobs)}\n"}
        race.runners = []
        races.append(race)
    sim = ("--engine", "sim", "--model", "m")
    with started_worker(valkey_server, *sim, log=tmp_path / "worker.log", BAKEHOUSE_SIM_CALLS=str(calls)):
        for race in races:
            assert run_producer("collect", "--all", "--jobs", race.jobs, *where).returncode == 0
            race.check()
    assert count_calls(calls) == RACES * ROWS


@pytest.mark.kill
def test_an_enqueue_killed_in_its_middle_goes_on(valkey: redis.Redis, valkey_server: Server, tmp_path: Path) -> None:
    rows = 1500
    source, output, jobs = write_requests(tmp_path / "in.jsonl", rows), tmp_path / "out.jsonl", tmp_path / "jobs"
    where = ("--redis-url", valkey_server.url, "--jobs", jobs)
    command = ("enqueue", source, "-o", output, "--model", "m", "--batch-size", 1, *where)
    with started(producer_command(*command), log=tmp_path / "enqueue.log") as first:
        wait_until(lambda: valkey.keys("bakehouse.q.m*"), timeout_s=60, description="hints are out")
        first.kill()
        first.wait()
    again = run_producer(*command)
    assert (again.returncode, again.stdout) == (0, f"{only_job(jobs)}\n"), again.stderr
    with started_worker(valkey_server, "--engine", "sim", "--sim-profile", "zero", log=tmp_path / "worker.log"):
        assert run_producer("collect", "--all", *where).returncode == 0
    assert durable_results(jobs) == rows
    check_whole(output, rows)


def test_what_the_same_command_may_and_may_not(valkey: redis.Redis, valkey_server: Server, tmp_path: Path) -> None:
    source, output, jobs = write_requests(tmp_path / "in.jsonl", ROWS), tmp_path / "out.jsonl", tmp_path / "jobs"
    where = ("--redis-url", valkey_server.url, "--jobs", jobs)

    def give(verb: str, *arguments: object, output: Path = output) -> tuple[int, str, str]:
        ended = run_producer(verb, source, "-o", output, *where, *arguments)
        return ended.returncode, ended.stdout.strip(), ended.stderr

    code, _, said = give("enqueue", "--job-id", "night")
    assert (code, "no live worker" in said, "none is alive: producer collect night" in said) == (0, True, True), said
    code, _, said = give("enqueue", "--job-id", "night", output=tmp_path / "other.jsonl")
    assert (code, "job night is another job: its output differ" in said) == (2, True), said
    with started_worker(valkey_server, "--engine", "sim", "--model", "m", log=tmp_path / "worker.log"):
        assert give("run", "--job-id", "night")[0] == 0
        check_whole(output, ROWS)
        before = output.read_bytes()
        code, _, said = give("run")
        assert (code, "job night was finished before" in said) == (0, True), said
        code, _, said = give("run", "--fresh")
        assert (code, "--overwrite" in said) == (2, True), said
        assert output.read_bytes() == before
        assert give("run", "--fresh", "--overwrite")[0] == 0
    check_whole(output, ROWS)
    assert output.read_bytes() != before
    assert len(JobDirectory.list_all(jobs)) == 2


def test_enqueue_names_the_collector_that_lives(valkey: redis.Redis, valkey_server: Server, tmp_path: Path) -> None:
    source = write_requests(tmp_path / "in.jsonl", ROWS)
    where = ("--redis-url", valkey_server.url, "--jobs", tmp_path / "jobs")
    with started(producer_command("collect", "--all", "--follow", *where), log=tmp_path / "follow.log") as service:
        wait_until(lambda: (tmp_path / "jobs" / ".collector").exists(), timeout_s=60, description="it follows")
        enqueued = run_producer("enqueue", source, "--model", "m", *where)
        assert enqueued.returncode == 0
        assert f"pid {service.pid}" in enqueued.stderr


def test_tags_are_the_jobs_own(valkey: redis.Redis, valkey_server: Server, tmp_path: Path) -> None:
    source = write_requests(tmp_path / "in.jsonl", ROWS)
    where = ("--redis-url", valkey_server.url, "--jobs", tmp_path / "jobs")
    elsewhere = ("--redis-url", valkey_server.url, "--jobs", tmp_path / "none")
    first = run_producer("enqueue", source, "--tag", "team=search", "--tag", "ticket=a=b c", *where)
    assert first.returncode == 0, first.stderr
    again = run_producer("enqueue", source, "--tag", "team=ads", *where)
    assert (again.returncode, again.stdout) == (0, first.stdout), again.stderr
    assert "keeps the tags it was made with: team=search, ticket=a=b c" in again.stderr
    (seen,) = json.loads(run_producer("status", "--json", *elsewhere).stdout)["jobs"]
    assert seen["tags"] == {"team": "search", "ticket": "a=b c"}
    shown = run_producer("status", first.stdout.strip(), *where).stdout.splitlines()
    assert [line.split(maxsplit=1)[1] for line in shown if line.startswith("tag ")] == ["team=search", "ticket=a=b c"]
