"""The scaling benchmark in small: real workers that come, go and are slow, and a figure for each."""

import json
import sys
from pathlib import Path

import pytest

from tests.processes import started
from tests.waiting import wait_until

pytestmark = pytest.mark.bench

SMALL = ("--workers", "2", "--rows", "240", "--rows-a-worker", "60", "--step-s", "0.002", "--repeats", "1")
END_S = 240


def test_every_job_has_its_figures(tmp_path: Path) -> None:
    picture = tmp_path / "scale.png"
    command = [sys.executable, "-m", "benchmarks.scale", *SMALL, "--picture", str(picture)]
    with started(command, log=tmp_path / "log") as benchmark:
        wait_until(lambda: benchmark.poll() is not None, timeout_s=END_S, description="the benchmark's end")
    assert benchmark.returncode in (0, 1)
    figures = json.loads((tmp_path / "log").read_text().splitlines()[-1])
    assert [(job["fleet"], job["rows"]) for job in figures["jobs"]] == [
        *(("1", 60), ("2", 240)),
        *(("1 + 1 slow", 60), ("1, +1, -1", 60)),
    ]
    for job in figures["jobs"]:
        assert 0 < job["dispatcher_s"] <= 2 * job["seconds"]
        assert job["last_row_s"] <= job["seconds"] + 1
        assert job["cpu"]["workers_s"] > 0
    assert (figures["change"]["joined"], figures["change"]["left"]) == (1, 1)
    (small,) = figures["small_jobs"]
    assert 0 < small["fed_s"] < small["result_s"]
    assert small["cpu_s"] > 0
    assert figures["ratios"] == {job["fleet"]: job["ratio"] for job in figures["jobs"]}
    assert figures["repeats"] == {"a second job's first result": [small["result_s"]]}
    assert figures["medians"] == {"a second job's first result": small["result_s"]}
    assert len(figures["bounds"]) == 3
    assert picture.stat().st_size > 10_000
