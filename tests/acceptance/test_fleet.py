"""`producer` with a fleet that is there: enqueue, worker, collector as processes of their own, on both servers."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.jobs import ROWS, check_summary, check_whole, only_job, write_requests
from tests.processes import producer_command, run_producer, started, started_worker
from tests.servers import Server
from tests.waiting import wait_until


@pytest.fixture
def fleet(any_server: Server, tmp_path: Path) -> Iterator[Server]:
    """Each server with one simulated worker that serves `m`."""
    any_server.client().flushall()
    with started_worker(any_server, "--engine", "sim", "--model", "m", log=tmp_path / "worker.log"):
        yield any_server


def test_three_processes_on_any_redis(fleet: Server, tmp_path: Path) -> None:
    source = write_requests(tmp_path / "in.jsonl", model="m")
    output, jobs = tmp_path / "out.jsonl", tmp_path / "jobs"
    where = ("--redis-url", fleet.url, "--jobs", jobs)
    enqueued = run_producer("enqueue", source, "-o", output, *where)
    assert enqueued.returncode == 0, enqueued.stderr
    job = only_job(jobs)
    assert enqueued.stdout == f"{job}\n"
    assert f"producer collect {job}" in enqueued.stderr
    elsewhere = ("--redis-url", fleet.url, "--jobs", tmp_path / "other-host", "--json")
    (seen,) = json.loads(run_producer("status", *elsewhere).stdout)["jobs"]
    assert (seen["job"], seen["state"], seen["directory"]) == (job, "in_progress", str(jobs / job))
    assert run_producer("enqueue", source, "-o", output, *where).stdout == f"{job}\n"

    collected = run_producer("collect", job, *where, "--json")
    assert collected.returncode == 0, collected.stderr
    check_whole(output)
    check_summary(json.loads(collected.stdout), output)

    shown = json.loads(run_producer("status", "--json", *where).stdout)
    assert [(each["job"], each["state"], each["done"]) for each in shown["jobs"]] == [(job, "completed", ROWS)]
    assert len(shown["workers"]) == 1
    (seen,) = json.loads(run_producer("status", job, *elsewhere).stdout)["jobs"]
    assert (seen["state"], seen["done"], seen["exit_code"]) == ("completed", ROWS, 0)
    assert run_producer("status", "no-such-job", *elsewhere).returncode == 3
    got = run_producer("get", job, "r-17", *where)
    assert got.stdout.encode() == output.read_bytes().split(b"\n")[17] + b"\n"
    assert run_producer("get", job, "no-such-id", *where).returncode == 1


def test_collect_all_takes_every_job_of_the_folder_and_follow_new_ones(fleet: Server, tmp_path: Path) -> None:
    where = ("--redis-url", fleet.url, "--jobs", tmp_path / "jobs")

    def enqueue(name: str) -> Path:
        source, output = write_requests(tmp_path / f"{name}.jsonl", 20, model="m"), tmp_path / f"{name}-out.jsonl"
        enqueued = run_producer("enqueue", source, "-o", output, "--job-id", name, *where)
        assert (enqueued.returncode, enqueued.stdout) == (0, f"{name}\n"), enqueued.stderr
        return output

    outputs = [enqueue("a"), enqueue("b")]
    collected = run_producer("collect", "--all", *where)
    assert collected.returncode == 0, collected.stderr
    for output in outputs:
        check_whole(output, 20)

    log = tmp_path / "follow.log"
    with started(producer_command("collect", "--all", "--follow", *where), log=log) as service:
        output = enqueue("c")
        wait_until(lambda: "c completed" in log.read_text(), timeout_s=30, description="a new job is done")
        check_whole(output, 20)
        service.send_signal(signal.SIGTERM)
        assert service.wait(10) == 0, log.read_text()


def test_redis_that_is_not_there_leaves_a_job_to_go_on_with(tmp_path: Path) -> None:
    source, jobs = write_requests(tmp_path / "in.jsonl", 3), tmp_path / "jobs"
    ended = run_producer("run", source, "--redis-url", f"unix://{tmp_path}/nobody.sock", "--jobs", jobs)
    assert ended.returncode == 3
    assert "Redis cannot be reached" in ended.stderr
    assert ended.stderr.rstrip().endswith(f"continue: producer resume {only_job(jobs)}")


def test_an_empty_file_is_a_finished_job_and_needs_no_worker(valkey_server: Server, tmp_path: Path) -> None:
    valkey_server.client().flushall()
    source, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.touch()
    where = ("--redis-url", valkey_server.url, "--jobs", tmp_path / "jobs")
    ended = run_producer("run", source, "-o", output, *where, "--json", timeout_s=30)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["total"] == 0
    assert output.read_bytes() == b""
