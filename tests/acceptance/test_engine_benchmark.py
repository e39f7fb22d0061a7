"""The engine benchmark in small: each side of a workload of one model and of one of two, and where its time went."""

import json
import sys
from pathlib import Path

import pytest

from tests.processes import started
from tests.waiting import wait_until

END_S = 280
SIDES = ["fleet", "all at once", "kept at 1.25x"]


@pytest.mark.slow_engine
def test_every_side_has_its_figures(tmp_path: Path) -> None:
    picture = tmp_path / "engine.png"
    chosen = ("--quick", "--workload", "heavy", "--workload", "mixed", "--picture", str(picture))
    with started([sys.executable, "-m", "benchmarks.engine", *chosen], log=tmp_path / "log") as benchmark:
        wait_until(lambda: benchmark.poll() is not None, timeout_s=END_S, description="the benchmark's end")
    assert benchmark.returncode in (0, 1)
    figures = json.loads((tmp_path / "log").read_text().splitlines()[-1])
    heavy, mixed = (figures["workloads"][name] for name in ("heavy", "mixed"))
    assert list(heavy["sides"]) == [*SIDES, "run-batch", "by 32", "by 8"]
    assert list(mixed["sides"]) == SIDES
    for workload in (heavy, mixed):
        for side in SIDES:
            (run,) = workload["sides"][side]
            assert run["tokens"] == workload["output_tokens"]
            assert run["steps"] > 0
            assert run["seconds"] > run["tail_s"] > 0
            assert run["cpu_s"]["engine core"] > 0
        (fleet,) = workload["sides"]["fleet"]
        assert 0 <= fleet["edges"]["first_s"] <= fleet["edges"]["full_s"] < fleet["seconds"]
        assert 0 < fleet["edges"]["settled_s"] < fleet["seconds"]
        assert fleet["cpu_s"]["collector"] > 0
        parts = workload["gap"]
        assert parts["whole_s"] == pytest.approx(sum(parts.values()) - parts["whole_s"], abs=0.01)
    assert len(figures["bounds"]) == 7
    assert picture.stat().st_size > 10_000
