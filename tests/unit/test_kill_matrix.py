"""docs/kill-matrix.md is what its JSON makes; and what the figures call held is held."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.chaos.__main__ import with_again
from benchmarks.chaos.document import read_document, write_document
from benchmarks.chaos.figures import HEADER, Figures, figures_of, records_from_json
from benchmarks.chaos.kinds import KILLED_S, KINDS, REAL_KINDS
from benchmarks.chaos.matrix import PAGE, render
from benchmarks.chaos.run import RunRecord

KIND = KINDS[0]


def record(**facts: object) -> RunRecord:
    facts = {"tokens_made": 110, "tokens_delivered": 100, **facts}
    return RunRecord(fault=KIND.fault, process=KIND.process, seed=1, **facts)  # type: ignore[arg-type]


def test_the_page_is_what_its_json_makes() -> None:
    """If not: `make kill-matrix`."""
    document = read_document()
    assert PAGE.read_text(encoding="utf-8") == render(document)


def test_the_page_names_commit_seeds_and_every_kind() -> None:
    document = read_document()
    page = PAGE.read_text(encoding="utf-8")
    seeds = [run["seed"] for run in document["runs"]]
    assert f"Commit `{document['commit']}`, seeds {min(seeds)} to {max(seeds)}" in page
    for kind in KINDS + REAL_KINDS:
        assert f"| {kind.fault} | {kind.process} |" in page


def test_a_record_survives_its_json(tmp_path: Path) -> None:
    before = record(redo_s=[1.5, 2.5], effects=["3 holds"])
    write_document(tmp_path / "runs.json", {"commit": "c", "runs": [before.to_json(), before.to_json()]})
    after = read_document(tmp_path / "runs.json")
    assert (after["commit"], records_from_json(after["runs"])) == ("c", [before, before])


def test_kinds_that_were_run_again() -> None:
    other = KINDS[1]
    before: dict[str, Any] = {
        "commit": "c",
        "command": "one",
        "minutes": 20,
        "waste": {},
        "runs": [record(lost=1).to_json()],
    }
    before["runs"].append(record().to_json() | {"fault": other.fault, "process": other.process})
    again: dict[str, Any] = {"commit": "c+", "command": "two", "minutes": 2, "runs": [record().to_json()]}
    merged = with_again(before, again)
    assert merged["runs"] == [before["runs"][1], again["runs"][0]]
    assert (merged["minutes"], merged["command"], merged["waste"]) == (22, "one; two", {})
    with pytest.raises(ValueError, match="runs of d"):
        with_again(before, again | {"commit": "d"})


def test_one_line_of_figures() -> None:
    void = record(void="nothing was held", tokens_made=900)
    (line,) = figures_of([record(redo_s=[1.0, 4.0]), record(redo_s=[2.0], standstill_s=3.0), void])
    shown = dict(zip(HEADER, line.cells(), strict=True))
    assert (shown["runs"], shown["void"], shown["lost"], shown["wrong"]) == ("3", "1", "0", "0")
    assert (shown["redo median s"], shown["redo max s"], shown["standstill s"]) == ("2.0", "4.0", "3.0")
    assert shown["tokens made / delivered"] == "1.100"
    assert shown["verdict"] == "held"


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param({"lost": 1}, id="a lost line"),
        pytest.param({"doubled": 1}, id="a doubled line"),
        pytest.param({"innocents": 1}, id="an innocent"),
        pytest.param({"broken": ["not in order"]}, id="an invariant"),
        pytest.param({"redo_s": [1.0, KILLED_S + 0.1]}, id="too late"),
        pytest.param({"void": "nothing was held"}, id="no run with an effect"),
        pytest.param({"lost": 1, "void": "nothing was held"}, id="a line lost in a void run"),
    ],
)
def test_what_is_missed(fault: dict[str, object]) -> None:
    line = Figures(KIND, (record(**fault),))
    assert line.misses
    assert line.cells()[-1] == "MISSED"
