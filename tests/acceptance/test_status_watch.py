"""How jobs get on, as people and programs see it: real commands on a fleet of simulated workers."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from producer.watch_page import BAR_CELLS
from tests.processes import environment, producer_command, read_results, run_producer
from tests.sharing import Jobs, shared_fleet, write_rows
from tests.terminal import terminal
from tests.waiting import wait_until

LONG, SHORT = 4_000, 24
HEARTBEAT_S = 5.0
LOST = "say 11"
"""Text of a prompt."""


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    """Two workers of 8 places, 50 ms a token."""
    with shared_fleet(tmp_path_factory.mktemp("watched"), workers=2, places=8, step_s=0.05) as jobs:
        yield jobs


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """A job that outlives a test."""
    return write_rows(tmp_path / "long.jsonl", [4 + n % 9 for n in range(LONG)])


def status(jobs: Jobs, *arguments: object, elsewhere: Path | None = None) -> list[str]:
    """The command; `elsewhere`: on a host that has none of the directories."""
    return producer_command(
        "status", *arguments, "--redis-url", jobs.server.url, "--jobs", elsewhere or jobs.folder / "jobs"
    )


def ask(jobs: Jobs, *arguments: object, elsewhere: Path | None = None) -> dict[str, Any]:
    """What `status --json` says."""
    ended = subprocess.run(
        status(jobs, *arguments, "--json", elsewhere=elsewhere), env=environment(), capture_output=True, check=True
    )
    said: dict[str, Any] = json.loads(ended.stdout)
    return said


def job_of(said: dict[str, Any], name: str) -> dict[str, Any]:
    """One job of it."""
    (found,) = [job for job in said["jobs"] if job["job"] == name]
    return dict(found)


@pytest.mark.parametrize("where", ["its own host", "another host"])
def test_a_screen_of_80_columns_shows_how_a_job_gets_on(jobs: Jobs, rows: Path, tmp_path: Path, where: str) -> None:
    name = f"watched-{where.split()[0]}"
    elsewhere = None if where == "its own host" else tmp_path / "nothing"
    with jobs.running(name, rows, "--deadline", (datetime.now(UTC) + timedelta(hours=9)).isoformat()):
        wait_until(lambda: jobs.done(name) > 100, timeout_s=60, description="it is under way")
        with terminal(status(jobs, name, "--watch", "--gpu-hourly-cost", "2.5", elsewhere=elsewhere)) as screen:
            screen.read_until("margin 8 h", timeout_s=60)
            os.killpg(screen.process.pid, signal.SIGINT)
            shown = screen.read_to_end()
            assert screen.process.returncode == 0
    for word in ("results/s", "tokens/s", "left", "of them not fed", "engines:", "failures", "at 2.50 an hour"):
        assert word in shown
    assert "processing_started" in shown, "the last events"
    workers = [line.split() for line in shown.splitlines() if "/10 " in line]
    assert len(workers) == 2, shown
    assert f"[{'#' * 1}" in shown
    assert len(next(line for line in shown.splitlines() if line.startswith("["))) > BAR_CELLS
    assert b"\x1b[?1049h" not in screen.raw, "no other screen: what was there stays"
    assert LOST.encode() not in screen.raw, "no text of a prompt"


def test_without_a_terminal_it_is_a_line_and_ends_with_the_job(jobs: Jobs, tmp_path: Path) -> None:
    jobs.run("short", write_rows(tmp_path / "in.jsonl", [4] * SHORT))
    ended = subprocess.run(
        status(jobs, "short", "--watch"), env=environment(), capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 0
    assert ended.stdout == f"short completed, {SHORT} of {SHORT} done, 0 failed\n"


def test_a_program_gets_tokens_gpu_seconds_tags_and_cost_of_all_jobs(jobs: Jobs, tmp_path: Path, rows: Path) -> None:
    jobs.run("warm", write_rows(tmp_path / "warm.jsonl", [10] * 4 * SHORT))
    wait_until(
        lambda: all(worker["busy_s"] > 0 for worker in ask(jobs)["workers"]),
        timeout_s=60,
        description="a heartbeat of each says that it has worked",
    )
    jobs.run("cheap", write_rows(tmp_path / "cheap.jsonl", [10] * SHORT), "--tag", "team=search")
    with jobs.running("dear", rows, "--tag", "team=ads"):
        wait_until(lambda: jobs.done("dear") > 200, timeout_s=60, description="it is under way")
        plain, priced = ask(jobs), ask(jobs, "--gpu-hourly-cost", "3600", elsewhere=tmp_path / "nothing")
    cheap = job_of(plain, "cheap")
    assert cheap["tags"] == {"team": "search"}
    assert cheap["completion_tokens"] == 10 * SHORT
    assert cheap["tokens"] == cheap["prompt_tokens"] + cheap["completion_tokens"]
    assert 0 < cheap["gpu_s"] < 2 * 60, "two workers, and it took less than a minute"
    assert "cost" not in cheap
    dear = job_of(priced, "dear")
    assert dear["tags"] == {"team": "ads"}
    assert dear["cost"] == pytest.approx(dear["gpu_s"]) != 0, "3600 an hour is 1 a second"
    assert dear["outlook"]["left_s"] > 0
    assert dear["outlook"]["bottleneck"] == "engines"
    assert {worker["gpu"] for worker in priced["workers"]} == {"cpu0", "cpu1"}
    assert all(worker["memory_bytes"] > 2**20 for worker in priced["workers"])


def test_the_time_of_shared_workers_is_split_by_tokens(jobs: Jobs, tmp_path: Path) -> None:
    before = sum(worker["busy_s"] for worker in ask(jobs)["workers"])
    rows = {"brief": write_rows(tmp_path / "brief.jsonl", [5] * LONG), "wordy": write_rows(tmp_path / "w", [20] * LONG)}
    with jobs.running("brief", rows["brief"]), jobs.running("wordy", rows["wordy"]):
        wait_until(lambda: min(jobs.done("brief"), jobs.done("wordy")) > 300, timeout_s=120, description="both ran")
        said = ask(jobs)
    brief, wordy = (job_of(said, name) for name in ("brief", "wordy"))
    weights = [job["tokens"] + job["done"] for job in (brief, wordy)]
    assert weights[1] > 1.5 * weights[0], "else an equal split would pass too"
    assert wordy["gpu_s"] / brief["gpu_s"] == pytest.approx(weights[1] / weights[0], rel=0.3)
    busy_s = sum(worker["busy_s"] for worker in said["workers"]) - before
    assert brief["gpu_s"] + wordy["gpu_s"] <= busy_s + 2 * HEARTBEAT_S, "workers may also run what others left"


def test_a_miss_is_said_early_and_late_results_are_counted(jobs: Jobs, tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "in.jsonl", [10] * 1_000)  # about half a minute
    output = jobs.folder / "missed-out.jsonl"
    by = datetime.now(UTC) + timedelta(seconds=20)
    where = ("--redis-url", jobs.server.url, "--jobs", jobs.folder / "jobs", "--job-id", "missed")
    ended = run_producer("run", rows, "-o", output, *where, "--deadline", by.isoformat(), "--json")
    assert ended.returncode == 0, ended.stderr
    warnings = [json.loads(line) for line in ended.stderr.splitlines() if line.startswith("{")]
    first = next(line for line in warnings if line["event"] == "deadline_at_risk")
    assert (by - datetime.fromisoformat(first["timestamp"])).total_seconds() > 5
    assert first["workers_needed"] > first["workers"] == 2
    assert "deadline_missed" in [line["event"] for line in warnings]
    summary = json.loads(ended.stdout)
    assert 0 < summary["late"] < summary["total"] == len(read_results(output)) == 1_000
    assert job_of(ask(jobs, "missed"), "missed")["late"] == summary["late"]
    assert f"{summary['late']} results after the deadline" in ended.stderr


def test_the_same_command_moves_the_deadline_and_the_same_words_keep_it(jobs: Jobs, tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "in.jsonl", [1])
    where = ("--redis-url", jobs.server.url, "--jobs", jobs.folder / "jobs", "--job-id", "moved", "--tag", "a=b")

    def give(*deadline: object) -> datetime:
        ended = run_producer("enqueue", rows, *where, *deadline)
        assert ended.returncode == 0, ended.stderr
        return datetime.fromisoformat(job_of(ask(jobs, "moved"), "moved")["deadline"])

    clock = f"{datetime.now() + timedelta(hours=2):%H:%M}"
    first = give("--deadline", clock)
    assert timedelta(hours=1, minutes=58) < first - datetime.now(UTC) < timedelta(hours=2)
    assert give("--deadline", clock) == first
    assert give() == first
    later = first + timedelta(days=1)
    assert give("--deadline", later.isoformat()) == later


@pytest.mark.parametrize("when", ["2020-01-01T07:00", "soon", "24:01"])
def test_a_deadline_that_cannot_be_is_refused_before_any_work(jobs: Jobs, tmp_path: Path, when: str) -> None:
    rows = write_rows(tmp_path / "in.jsonl", [1])
    ended = run_producer("enqueue", rows, "--redis-url", jobs.server.url, "--jobs", tmp_path / "j", "--deadline", when)
    assert ended.returncode == 2
    assert "deadline" in ended.stderr
    assert ended.stdout == ""
    assert not [path for path in (tmp_path / "j").glob("*") if path.is_dir()]
