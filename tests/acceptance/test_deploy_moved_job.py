"""A job directory is backed up and moved to another host: what goes on there, and what is refused and why."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.jobs import check_whole, durable_results, write_requests
from tests.processes import environment, producer_command, run_producer, started, started_worker
from tests.servers import Server
from tests.waiting import wait_until

pytestmark = pytest.mark.deploy

ROWS = 200
KNOBS = {"BAKEHOUSE_BATCH_SIZE": "8"}


@pytest.fixture
def server(own_server: Server, tmp_path: Path) -> Iterator[Server]:
    """One with a worker that takes its time."""
    simulated = ("--engine", "sim", "--model", "m", "--sim-places", "4", "--sim-seconds", "0.05")
    with started_worker(own_server, *simulated, log=tmp_path / "worker.log"):
        yield own_server


def on_new_host(*arguments: object) -> subprocess.CompletedProcess[str]:
    """`producer ARGUMENTS` on a host of another name."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("no other host name can be had here: root is needed, and unshare")
    renamed = ["unshare", "--uts", "sh", "-c", 'hostname new-host; exec "$@"', "sh", *producer_command(*arguments)]
    return subprocess.run(renamed, env=environment(**KNOBS), capture_output=True, text=True, timeout=180, check=False)


def stop_in_the_middle(jobs: Path, server: Server) -> None:
    """Collect the job `j` until some of it is done, then stop as Ctrl-C does."""
    command = producer_command("collect", "j", "--jobs", jobs, "--redis-url", server.url)
    with started(command, log=jobs / "collect.log", **KNOBS) as process:
        wait_until(lambda: durable_results(jobs) >= 20, timeout_s=60, description="some results")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    assert durable_results(jobs) < ROWS


def test_a_job_by_pipe_moves_with_its_directory(server: Server, tmp_path: Path) -> None:
    where, jobs, moved = ("--redis-url", server.url), tmp_path / "jobs", tmp_path / "elsewhere"
    given = write_requests(tmp_path / "in.jsonl", ROWS, model="m").read_bytes()
    command = producer_command("enqueue", "-", "--job-id", "j", "--jobs", jobs, *where)
    subprocess.run(command, env=environment(**KNOBS), input=given, capture_output=True, timeout=120, check=True)
    stop_in_the_middle(jobs, server)
    shutil.copytree(jobs / "j", moved / "j")
    ended = on_new_host("resume", "j", "--jobs", moved, *where)
    assert ended.returncode == 0, ended.stderr
    check_whole(moved / "j" / "output" / "results.jsonl", ROWS)
    before = (jobs / "j" / "output" / "results.jsonl").read_bytes()
    left = run_producer("resume", "j", "--jobs", jobs, *where)
    assert (left.returncode, "old copy" in left.stderr) == (2, True), left.stderr
    assert (jobs / "j" / "output" / "results.jsonl").read_bytes() == before


def test_input_and_output_must_be_where_they_were(server: Server, tmp_path: Path) -> None:
    where, jobs, moved = ("--redis-url", server.url), tmp_path / "jobs", tmp_path / "elsewhere"
    source, output = write_requests(tmp_path / "in.jsonl", ROWS, model="m"), tmp_path / "out.jsonl"
    enqueued = run_producer("enqueue", source, "-o", output, "--job-id", "j", "--jobs", jobs, *where)
    assert enqueued.returncode == 0, enqueued.stderr
    stop_in_the_middle(jobs, server)
    shutil.move(jobs / "j", moved / "j")
    for path in (source, output):
        path.rename(path.with_suffix(".away"))
        refused = on_new_host("resume", "j", "--jobs", moved, *where)
        assert (refused.returncode, str(path) in refused.stderr) == (2, True), refused.stderr
        path.with_suffix(".away").rename(path)
    ended = on_new_host("resume", "j", "--jobs", moved, *where)
    assert ended.returncode == 0, ended.stderr
    check_whole(output, ROWS)
