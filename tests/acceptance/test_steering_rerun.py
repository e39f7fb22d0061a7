"""`producer rerun` with real processes: after a bad deploy, killed in its middle, interrupted, with nothing left."""

import json
import signal
from pathlib import Path

import pytest

from tests.jobs import check_summary, check_whole, durable_results, only_job
from tests.processes import producer_command, read_results, run_producer, started, started_worker
from tests.servers import Server
from tests.waiting import wait_until

ROWS, BAD = 60, 20
SLOW = ("--sim-seconds", "0.1", "--sim-places", "4")
QUICK = ("--max-retries", "0", "--pause-above", "1", "--batch-size", "4")


def write_mixed(path: Path) -> Path:
    """60 requests, `r-0` first; every third one says `bad`."""
    lines = (
        {"custom_id": f"r-{n}", "prompt": f"say {n}{' bad' if n % 3 == 1 else ''}", "max_tokens": 8, "model": "m"}
        for n in range(ROWS)
    )
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture
def bad_deploy(valkey_server: Server, tmp_path: Path) -> tuple[str, Path, tuple[object, ...]]:
    """A finished job of which a third failed: its id, its output, and the flags to find it."""
    valkey_server.client().flushall()
    source, output, jobs = write_mixed(tmp_path / "in.jsonl"), tmp_path / "out.jsonl", tmp_path / "jobs"
    where = ("--redis-url", valkey_server.url, "--jobs", jobs)
    sim = ("--engine", "sim", "--model", "m", "--sim-pattern", "fail=bad")
    with started_worker(valkey_server, *sim, log=tmp_path / "bad-worker.log"):
        ended = run_producer("run", source, "-o", output, "--model", "m", *QUICK, *where, "--json")
    assert ended.returncode == 1, ended.stderr
    assert json.loads(ended.stdout)["failures"] == {"engine_error": BAD}
    return only_job(jobs), output, where


def test_killed_in_its_middle_and_given_again(
    bad_deploy: tuple[str, Path, tuple[object, ...]], valkey_server: Server, tmp_path: Path
) -> None:
    job, output, where = bad_deploy
    before, log = output.read_bytes(), tmp_path / "rerun.log"
    command = ("rerun", job, "--status", "5xx", *where)
    with started_worker(
        valkey_server, "--engine", "sim", "--model", "m", *SLOW, log=tmp_path / "worker.log"
    ) as _worker:
        with started(producer_command(*command), log=log) as process:
            wait_until(
                lambda: durable_results(tmp_path / "jobs") >= ROWS + 3 or process.poll() is not None,
                timeout_s=60,
                description="results of the rerun",
            )
            process.kill()
            assert process.wait(10) == -signal.SIGKILL, log.read_text()
        assert output.read_bytes() == before, "until its end the ordered file stays as it is"
        for jobs in (tmp_path / "jobs", tmp_path / "other-host"):
            shown = run_producer("status", job, "--redis-url", valkey_server.url, "--jobs", jobs, "--json")
            (seen,) = json.loads(shown.stdout)["jobs"]
            assert (seen["state"], seen["exit_code"], seen["total"]) == ("in_progress", None, ROWS)
        refused = run_producer("rerun", job, *where)
        assert (refused.returncode, "producer resume" in refused.stderr) == (2, True), refused.stderr
        ended = run_producer(*command, "--json")
    assert ended.returncode == 0, ended.stderr
    check_whole(output, ROWS)
    check_summary(json.loads(ended.stdout), output)
    assert (tmp_path / "out.1.jsonl").read_bytes() == before
    kept = {line for number, line in enumerate(before.splitlines()) if number % 3 != 1}
    assert set(output.read_bytes().splitlines()) >= kept, "what was good is the same, byte for byte"
    got = run_producer("get", job, "r-1", *where)
    assert json.loads(got.stdout) == read_results(output)[1]
    assert durable_results(tmp_path / "jobs") == ROWS + BAD, "each row once"
    check_nothing_begins(job, where, tmp_path)
    assert sorted(path.name for path in tmp_path.glob("out*")) == ["out.1.jsonl", "out.jsonl"]


def check_nothing_begins(job: str, where: tuple[object, ...], folder: Path) -> None:
    """Of a job that is all good, and of an id that it does not have."""
    nothing = run_producer("rerun", job, *where)
    assert (nothing.returncode, "nothing to run again" in nothing.stderr) == (0, True), nothing.stderr
    unknown = folder / "ids.txt"
    unknown.write_text("r-1\nnobody\n")
    refused = run_producer("rerun", job, "--ids", unknown, *where)
    assert (refused.returncode, "'nobody'" in refused.stderr) == (2, True), refused.stderr


def test_interrupted_and_resumed_with_a_server_and_a_worker_of_its_own(tmp_path: Path) -> None:
    """What still fails by the same engine is said, and the exit code is that of the job."""
    source, output, jobs = write_mixed(tmp_path / "in.jsonl"), tmp_path / "out.jsonl", tmp_path / "jobs"
    run = ("run", source, "-o", output, "--engine", "sim", *SLOW, "--sim-pattern", "fail=bad", *QUICK, "--jobs", jobs)
    first = run_producer(*run)
    assert first.returncode == 1, first.stderr
    job, before, log = only_job(jobs), output.read_bytes(), tmp_path / "rerun.log"
    listed = tmp_path / "ids.txt"
    listed.write_text("".join(f"r-{n}\n" for n in range(ROWS)))
    with started(producer_command("rerun", job, "--ids", listed, "--jobs", jobs), log=log) as process:
        wait_until(
            lambda: durable_results(jobs) >= ROWS + 3 or process.poll() is not None,
            timeout_s=60,
            description="results of the rerun",
        )
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130, log.read_text()
    assert log.read_text().rstrip().endswith(f"continue: producer resume {job}")
    resumed = run_producer("resume", job, "--jobs", jobs, "--json")
    assert resumed.returncode == 1, resumed.stderr
    check_summary(json.loads(resumed.stdout), output)
    assert [result["custom_id"] for result in read_results(output)] == [f"r-{n}" for n in range(ROWS)]
    assert (tmp_path / "out.1.jsonl").read_bytes() == before
    again = run_producer(*run)
    assert (again.returncode, "finished before" in again.stderr) == (1, True), again.stderr
