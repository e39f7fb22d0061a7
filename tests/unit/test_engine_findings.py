"""What the engine benchmark makes of its runs: ratios of neighbours, bounds, tables, one JSON line, the picture."""

import json
from pathlib import Path

import pytest

from benchmarks.engine import findings, gap
from benchmarks.engine.__main__ import report
from benchmarks.engine.findings import FASTER, Findings
from benchmarks.engine.measured import Edges, Measured
from benchmarks.engine.picture import draw_engine
from benchmarks.engine.workloads import AT_ONCE, BY_8, BY_32, FLEET, KEPT, RUN_BATCH, workloads

TOKENS = 1_000
CPU = {"engine core": 90.0, "front": 30.0, "collector": 4.0, "server": 1.0}


def runs(*seconds: float, tokens: int = TOKENS, edges: Edges | None = None) -> list[Measured]:
    return [Measured(s, tokens, 500, 10.0, CPU, edges) for s in seconds]


def found(name: str, *, fleet: list[Measured]) -> Findings:
    workload = workloads(quick=False)[name]
    sides = {FLEET: fleet, AT_ONCE: runs(100, 98), KEPT: runs(97, 100), RUN_BATCH: runs(102, 101)}
    kept = {side: sides[side] for side in workload.sides}
    if workload.one_by_one:
        kept |= {BY_32: runs(50, tokens=TOKENS // 4), BY_8: runs(60, tokens=TOKENS // 8)}
    return Findings(workload, 100, TOKENS, kept)


def test_the_faster_side_is_found_in_each_repeat() -> None:
    heavy = found("heavy", fleet=runs(100, 100))
    assert [run.seconds for run in heavy.faster] == [97, 98]
    assert heavy.compared.ratios[FASTER] == pytest.approx((0.97 + 0.98) / 2)
    assert heavy.one_by_one == {BY_32: pytest.approx(2.0), BY_8: pytest.approx(4.8)}
    assert [bound.held for bound in heavy.bounds()] == [True] * 5


@pytest.mark.parametrize(
    ("fleet", "missed"),
    [
        (runs(103, 104), ["fleet / faster of all at once and kept", "fleet / run-batch"]),
        (runs(101.6, 101.6), ["fleet / faster of all at once and kept", "fleet / run-batch"]),
        (runs(100, 100, tokens=1_010), ["token totals differ by"]),
    ],
)
def test_a_missed_bound_is_named(fleet: list[Measured], missed: list[str]) -> None:
    bounds = found("heavy", fleet=fleet).bounds()
    assert [bound.what for bound in bounds if not bound.held] == [f"heavy: {what}" for what in missed]


def test_tables_have_a_cell_for_each_column() -> None:
    for each in (
        found("heavy", fleet=runs(99, 99, edges=Edges(0.1, None, 0.1, 0.2))),
        found("mixed", fleet=runs(9, 9)),
    ):
        assert {len(line) for line in each.rates()} == {len(findings.HEADER)}
        assert {len(line) for line in each.places()} == {len(gap.HEADER)}
        assert len(each.gaps()) == len(gap.PARTS)


def test_the_report_is_one_json_line_and_a_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edges = Edges(0.1, 0.3, 0.05, 0.2)
    all_found = [found("heavy", fleet=runs(99, 99, edges=edges)), found("mixed", fleet=runs(150, 150, edges=edges))]
    assert report(all_found) == 1
    said = capsys.readouterr().out
    assert "MISSED" in said
    figures = json.loads(said.splitlines()[-1])
    assert list(figures["workloads"]) == ["heavy", "mixed"]
    mixed = figures["workloads"]["mixed"]
    assert list(mixed["sides"]) == [FLEET, AT_ONCE, KEPT]
    assert mixed["gap"]["whole_s"] == pytest.approx(sum(mixed["gap"].values()) / 2)
    draw_engine(tmp_path / "engine.png", all_found)
    assert (tmp_path / "engine.png").stat().st_size > 10_000
