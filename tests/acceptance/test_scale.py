"""The scaling benchmark in small: real workers that come, go and are slow, and a figure for each."""

import json
import subprocess
import sys
from pathlib import Path

from tests.processes import ROOT, environment

SMALL = ("--workers", "2", "--rows", "240", "--rows-a-worker", "60", "--step-s", "0.002", "--repeats", "1")


def test_every_job_has_its_figures(tmp_path: Path) -> None:
    picture = tmp_path / "scale.png"
    command = [sys.executable, "-m", "benchmarks.scale", *SMALL, "--picture", str(picture)]
    ended = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
    assert ended.returncode in (0, 1), ended.stderr[-3000:]
    figures = json.loads(ended.stdout.splitlines()[-1])
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
    assert len(figures["bounds"]) == 3
    assert picture.stat().st_size > 10_000
