"""The benchmarks of the pipeline and of watching it in small: each side does what it says. Speed is not looked at."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.processes import started
from tests.waiting import wait_until

pytestmark = pytest.mark.bench

ROWS, CELERY_ROWS = 2_000, 200
END_S = 240
FLEET = {"producer", "supervisor", "supervisor/worker.app", "redis"}
SIDES = {
    "fleet, 32 a message": FLEET,
    "the same, events on": FLEET | {"listener"},
    "fleet, 128 a message": FLEET,
    "Celery, 32 a message, no disk": {"client", "worker", "redis"},
    "Celery, a task a row": {"client", "worker", "redis"},
}


def run_benchmark(name: str, *arguments: object, log: Path) -> dict[str, Any]:
    """`python -m benchmarks.NAME` to its end; its JSON line."""
    command = [sys.executable, "-m", f"benchmarks.{name}", *map(str, arguments)]
    with started(command, log=log) as benchmark:
        wait_until(lambda: benchmark.poll() is not None, timeout_s=END_S, description="the benchmark's end")
    figures: dict[str, Any] = json.loads(log.read_text().splitlines()[-1])
    missed = [bound for bound in figures["bounds"].values() if bound["verdict"] == "MISSED"]
    assert benchmark.returncode == (1 if missed else 0)
    return figures


def test_all_sides_run_the_same_rows(tmp_path: Path) -> None:
    picture = tmp_path / "pipeline.png"
    small = ("--rows", ROWS, "--celery-rows", CELERY_ROWS, "--repeats", 1)
    figures = run_benchmark("pipeline", *small, "--picture", picture, log=tmp_path / "log")
    assert figures["sides"].keys() == figures["repeats"].keys() == figures["medians"].keys() == SIDES.keys()
    assert figures["ratios"].keys() == SIDES.keys() - {"fleet, 32 a message"}
    for side, processes in SIDES.items():
        (measured,) = figures["sides"][side]
        assert measured["rows"] == (CELERY_ROWS if side == "Celery, a task a row" else ROWS)
        assert figures["repeats"][side] == [figures["medians"][side]]
        assert abs(measured["rows"] / measured["seconds"] - figures["medians"][side]) < 1
        assert measured["processes"].keys() == processes
        assert all(used["peak_mib"] > 0 for used in measured["processes"].values())
        assert (measured["events"] > 2 * measured["messages"]) == (side == "the same, events on")
    messages = {side: repeats[0]["messages"] for side, repeats in figures["sides"].items()}
    assert messages["fleet, 128 a message"] < messages["fleet, 32 a message"]
    assert messages["Celery, 32 a message, no disk"] == -(-ROWS // 32)
    assert len(figures["bounds"]) == 3
    assert picture.stat().st_size > 10_000


def test_watching_is_on_and_off_in_turns(tmp_path: Path) -> None:
    picture = tmp_path / "watching.png"
    figures = run_benchmark("watching", "--rows", ROWS, "--repeats", 1, "--picture", picture, log=tmp_path / "log")
    sides = {side: repeats[0] for side, repeats in figures["sides"].items()}
    assert sides.keys() == figures["repeats"].keys() == {"all off", "metrics and logs on", "events on"}
    assert {side for side, measured in sides.items() if measured["events"]} == {"events on"}
    assert {side for side, measured in sides.items() if measured["scrapes"]} == {"metrics and logs on"}
    logged = {side: measured["log_bytes"] > ROWS * 100 for side, measured in sides.items()}
    assert logged == {"all off": False, "metrics and logs on": True, "events on": False}
    for cost, side in (("metrics and logs cost", "metrics and logs on"), ("events cost", "events on")):
        (bound,) = (bound for what, bound in figures["bounds"].items() if what.startswith(cost))
        lost = 1 - figures["medians"][side] / figures["medians"]["all off"]
        assert abs(bound["figure"] - lost) < 0.001
    assert picture.stat().st_size > 10_000
