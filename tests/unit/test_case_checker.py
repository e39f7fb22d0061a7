"""The checker of cases: right outputs made up for every alternative pass, and each kind of damage is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.case_checker import (
    Case,
    CaseError,
    Expectation,
    check_run,
    find_ids,
    parse_expectation,
    read_cases,
    read_input,
)

Results = list[dict[str, Any]]


def _alternatives() -> list[tuple[Case, str]]:
    return [(case, alternative.strip()) for case in read_cases() for alternative in case.expect.split(" || ")]


def _right_results(case: Case, expectation: Expectation) -> Results:
    lines = read_input(case.path)
    results = []
    for number, options in sorted(expectation.statuses.items()):
        status = int(options.split("|")[0].replace("xx", "00"))
        ids = sorted(find_ids(lines[number - 1])[0])
        choices = [{"index": index} for index in range(expectation.choices.get(number, 1))]
        results.append(
            {
                "id": f"job-{number}",
                "custom_id": ids[-1] if ids else None,
                "line": number,
                "response": {"status_code": status, "body": {"choices": choices} if status == 200 else None},
                "error": None if status == 200 else {"code": "x", "message": "m"},
            }
        )
    return results


def _right_exit(expectation: Expectation, results: Results) -> int:
    if expectation.exits == {0, 1}:
        return int(any(result["error"] for result in results))
    return min(expectation.exits)


def _check(folder: Path, case: Case, alternative: str, results: Results, exit_code: int, tail: str = "\n") -> None:
    output = folder / "out.jsonl"
    text = "\n".join(json.dumps(result) for result in results)
    output.write_text(text + tail if results else "", encoding="utf-8")
    check_run(alternative, input_path=case.path, output_path=output, exit_code=exit_code)


@pytest.mark.parametrize(("case", "alternative"), _alternatives())
def test_right_output_passes_and_damaged_is_refused(case: Case, alternative: str, tmp_path: Path) -> None:
    expectation = parse_expectation(alternative)
    results = _right_results(case, expectation)
    exit_code = _right_exit(expectation, results)
    _check(tmp_path, case, alternative, results, exit_code)
    with pytest.raises(CaseError):
        _check(tmp_path, case, alternative, results, 7)
    if len(results) < 2:
        return
    swapped = [results[1], results[0], *results[2:]]
    for damaged in (results[:-1], [*results, results[-1]], swapped):
        with pytest.raises(CaseError):
            _check(tmp_path, case, alternative, damaged, exit_code)
    with pytest.raises(CaseError):
        _check(tmp_path, case, alternative, results, exit_code, tail="")
    with pytest.raises(CaseError):
        _check(tmp_path, case, alternative, results, 0 if exit_code == 1 else 1)


@pytest.mark.parametrize("case", read_cases())
def test_named_lines_are_exactly_those_that_are_not_blank(case: Case) -> None:
    lines = read_input(case.path)
    expectation = parse_expectation(case.expect.split(" || ")[0])
    assert sorted(expectation.statuses) == [number for number, line in enumerate(lines, 1) if line.strip()]


def _change(**fields: object) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda result: {**result, **fields}


@pytest.mark.parametrize(
    "damage",
    [
        _change(custom_id=None),
        _change(custom_id="other"),
        _change(line=2),
        _change(error={"code": "x", "message": "m"}),
        _change(response={"status_code": 500, "body": None}),
        _change(response=None),
        _change(extra=float("nan")),
        _change(extra="\ud83d"),
    ],
)
def test_one_damaged_field_is_refused(damage: Callable[[dict[str, Any]], dict[str, Any]], tmp_path: Path) -> None:
    case = next(case for case in read_cases() if case.name == "A03")
    results = _right_results(case, parse_expectation(case.expect))
    with pytest.raises(CaseError):
        _check(tmp_path, case, case.expect, [damage(results[0]), *results[1:]], 0)
