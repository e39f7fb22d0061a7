"""`producer` as its user meets it, on the simulated engine: run, stop, go on, and what it says at each end."""

import json
import re
import signal
import subprocess
import time
from pathlib import Path

import psutil

from tests.jobs import ROWS, check_summary, check_whole, only_job, wait_for_results, write_requests
from tests.processes import (
    alive,
    descendants,
    environment,
    producer_command,
    read_results,
    run_producer,
    started,
)
from tests.waiting import wait_until

SLOW = ("--engine", "sim", "--sim-seconds", "0.05", "--sim-places", "4", "--batch-size", "4")
"""4 requests of 8 tokens take 0.4 s: 60 rows take 6 s."""


def test_run_brings_all_it_needs_and_takes_it_away(tmp_path: Path) -> None:
    source, output, jobs = write_requests(tmp_path / "in.jsonl"), tmp_path / "out.jsonl", tmp_path / "jobs"
    with source.open("a") as more:
        more.write('\n{"custom_id": "bad", "prompt": \n{"custom_id": "r-0", "prompt": "again"}\n')
    arguments = ("run", source, "-o", output, "--engine", "sim", "--jobs", jobs, "--json")
    ended = run_producer(*arguments)
    assert ended.returncode == 1, ended.stderr
    first = ended.stderr.splitlines()[0]
    assert re.search(
        r"embedded Valkey 9\.\d+\.\d+ and one local worker \(simulated engine: answers are made up\)", first
    )
    summary = json.loads(ended.stdout)
    check_summary(summary, output)
    assert summary["failures"] == {"invalid_json": 1, "duplicate_custom_id": 1}
    assert summary["blank"] == 1
    assert summary["exit_code"] == 1
    assert str(output) in ended.stderr
    assert "continue:" not in ended.stderr
    assert not [process for process in psutil.process_iter(["cmdline"]) if str(jobs) in str(process.info["cmdline"])]
    assert output.stat().st_mode & 0o777 == 0o600

    again = run_producer(*arguments)
    assert "one local worker" not in again.stderr
    assert again.returncode == 1
    assert {**json.loads(again.stdout), "elapsed_s": summary["elapsed_s"]} == summary
    assert only_job(jobs) == summary["job"]


def test_fail_above_forgives_a_share(tmp_path: Path) -> None:
    source = write_requests(tmp_path / "in.jsonl", 9)
    with source.open("a") as more:
        more.write("{}\n")
    arguments = ("run", source, "--engine", "sim", "--jobs", tmp_path / "jobs", "--fail-above", "0.1")
    ended = run_producer(*arguments)
    assert ended.returncode == 0, ended.stderr


def test_ctrl_c_lets_what_runs_finish_and_the_same_command_goes_on(tmp_path: Path) -> None:
    source, output, jobs = write_requests(tmp_path / "in.jsonl"), tmp_path / "out.jsonl", tmp_path / "jobs"
    arguments, log = ("run", source, "-o", output, "--jobs", jobs, *SLOW), tmp_path / "run.log"
    with started(producer_command(*arguments), log=log) as run:
        wait_for_results(output, run, at_least=8, log=log)
        below = descendants(run.pid)
        second = run_producer(*arguments)
        assert second.returncode == 2
        assert f"pid {run.pid}" in second.stderr
        run.send_signal(signal.SIGINT)
        assert run.wait(30) == 130, log.read_text()
    said = log.read_text()
    job = only_job(jobs)
    assert said.rstrip().endswith(f"continue: producer resume {job}"), said
    assert "Traceback" not in said
    assert not [process for process in below if alive(process)]
    before = output.read_bytes()
    stopped_at = len(read_results(output))
    assert 8 <= stopped_at < ROWS
    ended = run_producer(*arguments)
    assert ended.returncode == 0, ended.stderr
    assert output.read_bytes().startswith(before)
    check_whole(output)
    assert only_job(jobs) == job


def test_ctrl_c_twice_ends_at_once_and_resume_goes_on(tmp_path: Path) -> None:
    source, output, jobs = write_requests(tmp_path / "in.jsonl", 11), tmp_path / "out.jsonl", tmp_path / "jobs"
    with source.open("a") as more:
        more.write('{"custom_id": "long", "prompt": "it takes 100 s", "max_tokens": 10000}\n')
    log = tmp_path / "run.log"
    with started(producer_command("run", source, "-o", output, "--jobs", jobs, "--engine", "sim"), log=log) as run:
        wait_for_results(output, run, at_least=11, log=log)
        run.send_signal(signal.SIGINT)
        wait_until(lambda: "Ctrl-C again" in log.read_text(), timeout_s=5, description="the first one is answered")
        began = time.monotonic()
        run.send_signal(signal.SIGINT)
        assert run.wait(20) == 130
        assert time.monotonic() - began < 10
    assert f"continue: producer resume {only_job(jobs)}" in log.read_text()
    assert len(read_results(output)) == 11


def test_sigterm_is_a_ctrl_c_and_resume_goes_on(tmp_path: Path) -> None:
    source, output, jobs = write_requests(tmp_path / "in.jsonl"), tmp_path / "out.jsonl", tmp_path / "jobs"
    log = tmp_path / "run.log"
    with started(producer_command("run", source, "-o", output, "--jobs", jobs, *SLOW), log=log) as run:
        wait_for_results(output, run, at_least=8, log=log)
        run.send_signal(signal.SIGTERM)
        assert run.wait(30) == 130, log.read_text()
    job = only_job(jobs)
    shown = run_producer("status", job, "--jobs", jobs, "--json")
    assert json.loads(shown.stdout)["jobs"][0]["state"] == "in_progress"
    waiting = run_producer("get", job, f"r-{ROWS - 1}", "--jobs", jobs)
    assert (waiting.returncode, waiting.stdout) == (3, "")
    assert f"continue: producer resume {job}" in waiting.stderr
    resumed = run_producer("resume", job, "--jobs", jobs, "--json")
    assert resumed.returncode == 0, resumed.stderr
    check_whole(output)
    check_summary(json.loads(resumed.stdout), output)


def test_a_worker_that_cannot_start_says_why(tmp_path: Path) -> None:
    source, jobs = write_requests(tmp_path / "in.jsonl", 3), tmp_path / "jobs"
    ended = run_producer("run", source, "--engine", "sim", "--sim-pattern", "dance=x", "--jobs", jobs)
    assert ended.returncode == 3
    assert "dance" in ended.stderr
    assert "the local worker ended" in ended.stderr
    assert ended.stderr.rstrip().endswith(f"continue: producer resume {only_job(jobs)}")


def test_killed_run_leaves_nobody_behind(tmp_path: Path) -> None:
    source, output, jobs = write_requests(tmp_path / "in.jsonl"), tmp_path / "out.jsonl", tmp_path / "jobs"
    log = tmp_path / "run.log"
    with started(producer_command("run", source, "-o", output, "--jobs", jobs, *SLOW), log=log) as run:
        wait_for_results(output, run, at_least=4, log=log)
        below = descendants(run.pid)
        assert len(below) >= 3
        run.kill()
        run.wait()
        wait_until(
            lambda: not [process for process in below if alive(process)],
            timeout_s=2,
            description="server, supervisor and worker are gone",
        )


def run_from_stdin(source: Path, output: Path, jobs: Path) -> "subprocess.CompletedProcess[str]":
    """`producer run -` with the lines of `source`."""
    command = producer_command("run", "-", "-o", output, "--engine", "sim", "--jobs", jobs)
    with source.open() as lines:
        return subprocess.run(
            command, env=environment(), stdin=lines, capture_output=True, text=True, timeout=60, check=False
        )


def test_requests_come_by_standard_input(tmp_path: Path) -> None:
    source, output, jobs = write_requests(tmp_path / "in.jsonl", 5), tmp_path / "out.jsonl", tmp_path / "jobs"
    ended = run_from_stdin(source, output, jobs)
    assert ended.returncode == 0, ended.stderr
    check_whole(output, 5)
    again = run_from_stdin(source, output, jobs)
    assert again.returncode == 0
    assert "was finished before" in again.stderr
    other = run_from_stdin(write_requests(tmp_path / "other.jsonl", 6), output, jobs)
    assert other.returncode == 2
    assert "--fresh" in other.stderr
    check_whole(output, 5)
