"""Judges one run against a case of `tests/data/cases`: exit code, and each result's order, status, id and line number.

`cases.tsv` holds a row a file: case, file, kind, bytes, expect, title. Grammar of `expect`, of which one alternative
must hold:

    ALT ( ' || ' ALT )*      ALT  = TOK (';' TOK)* ' @' EXIT      EXIT = code['|'code...] or '!'code['|'code...]
    TOK = 'L'a['-'b]'='OPTS, 'N(L'a')='k (k choices), or 'FILE=reject' (no results)
    OPTS = status['|'status...], 5xx for a class

Line numbers are physical, from 1; lines not named are blank. Exit 0 means that every result is 200.
"""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

CASES = Path(__file__).parent / "data" / "cases"

_RANGE = re.compile(r"L(\d+)(?:-(\d+))?=(.+)")
_CHOICES = re.compile(r"N\(L(\d+)\)=(\d+)")
_ID = re.compile(r'"custom_id"\s*:\s*"((?:[^"\\]|\\.)*)"')


class CaseError(AssertionError):
    """What is wrong with a run."""


class Case(NamedTuple):
    """One row of `cases.tsv`."""

    name: str
    file: str
    expect: str

    @property
    def path(self) -> Path:
        """Its input."""
        return CASES / self.file


@dataclass
class Expectation:
    """One alternative of an `expect`, parsed."""

    exits: set[int]
    exits_forbidden: bool
    statuses: dict[int, str] = field(default_factory=dict)
    choices: dict[int, int] = field(default_factory=dict)
    refused: bool = False

    def allows_exit(self, code: int) -> bool:
        """Whether a run may end with `code`."""
        return (code in self.exits) is not self.exits_forbidden


def read_cases() -> list[Case]:
    """All rows of `cases.tsv`."""
    rows = (CASES / "cases.tsv").read_text(encoding="utf-8").splitlines()[1:]
    return [Case(fields[0], fields[1], fields[4]) for fields in (row.split("\t") for row in rows)]


def check_run(expect: str, *, input_path: Path, output_path: Path, exit_code: int) -> None:
    """Raises `CaseError` with the fault of each alternative unless one of them holds."""
    lines = read_input(input_path)
    faults = []
    for alternative in expect.split(" || "):
        try:
            _judge(parse_expectation(alternative), lines, output_path, exit_code)
            return
        except CaseError as fault:
            faults.append(f"{alternative.strip()}: {fault}")
    raise CaseError("\n".join(faults))


def parse_expectation(alternative: str) -> Expectation:
    """One alternative of an `expect`. Raises ValueError when it is not of the grammar."""
    spec, at, exits = alternative.strip().rpartition("@")
    if not at:
        raise ValueError(f"no exit code in {alternative!r}")
    codes = {int(code) for code in exits.removeprefix("!").split("|")}
    expectation = Expectation(codes, exits.startswith("!"))
    for token in filter(None, (part.strip() for part in spec.split(";"))):
        if found := _CHOICES.fullmatch(token):
            expectation.choices[int(found[1])] = int(found[2])
        elif found := _RANGE.fullmatch(token):
            for line in range(int(found[1]), int(found[2] or found[1]) + 1):
                expectation.statuses[line] = found[3]
        elif token == "FILE=reject":
            expectation.refused = True
        else:
            raise ValueError(f"bad token {token!r}")
    return expectation


def read_input(path: Path) -> list[bytes]:
    """The physical lines of a case, without BOM, LF and the CR before it."""
    lines = path.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    return [line.removesuffix(b"\r") for line in lines]


def read_output(path: Path) -> list[dict[str, Any]]:
    """The results of a run. Raises `CaseError` on anything but strict JSON objects in UTF-8, each line ended by LF."""
    if not path.exists():
        raise CaseError("no output file")
    raw = path.read_bytes()
    if raw and not raw.endswith(b"\n"):
        raise CaseError("the output's last line is torn")
    if raw.startswith(b"\xef\xbb\xbf"):
        raise CaseError("the output starts with a byte-order mark")
    return [_read_result(line, number) for number, line in enumerate(raw.split(b"\n")[:-1], 1)]


def find_ids(line: bytes) -> tuple[set[str], bool]:
    """Every `custom_id` the line can be read to carry, and whether a lenient parser reads the line at all."""
    text = line.decode("utf-8", "replace")
    try:
        pairs = json.loads(text, object_pairs_hook=tuple)
        found = {value for key, value in _pairs(pairs) if key == "custom_id" and isinstance(value, str)}
        clean = True
    except ValueError:
        clean = False
        found = set(filter(None, map(_unescape, _ID.findall(text))))
    return {value for value in found if not _holds_lone_surrogate(value)}, clean


def _judge(expectation: Expectation, lines: list[bytes], output_path: Path, exit_code: int) -> None:
    if not expectation.allows_exit(exit_code):
        raise CaseError(f"exit code {exit_code}")
    if expectation.refused:
        if output_path.exists() and read_output(output_path):
            raise CaseError("the file should be refused before anything runs, yet there are results")
        return
    results = read_output(output_path) if expectation.statuses or output_path.exists() else []
    if len(results) != len(expectation.statuses):
        raise CaseError(f"{len(results)} results for {len(expectation.statuses)} requests")
    for number, result in zip(sorted(expectation.statuses), results, strict=True):
        _check_result(result, number, lines[number - 1], expectation)
    if len({result["id"] for result in results}) != len(results):
        raise CaseError("the same result id twice")
    all_good = all(result["response"]["status_code"] == 200 for result in results)
    if exit_code in (0, 1) and all_good != (exit_code == 0):
        raise CaseError(f"exit code {exit_code} does not agree with the results")


def _check_result(result: dict[str, Any], number: int, line: bytes, expectation: Expectation) -> None:
    response = result.get("response")
    if not isinstance(response, dict) or not isinstance(response.get("status_code"), int):
        raise CaseError(f"line {number}: no status")
    status = response["status_code"]
    if not any(_allows_status(option, status) for option in expectation.statuses[number].split("|")):
        raise CaseError(f"line {number}: status {status}, wanted {expectation.statuses[number]}")
    if (status == 200) != (result.get("error") is None):
        raise CaseError(f"line {number}: status {status} and error do not agree")
    if result.get("line") != number:
        raise CaseError(f"line {number}: the result says line {result.get('line')}")
    _check_id(result.get("custom_id"), number, line, status)
    if number in expectation.choices:
        indexes = sorted(choice["index"] for choice in response["body"]["choices"])
        if indexes != list(range(expectation.choices[number])):
            raise CaseError(f"line {number}: choices {indexes}, wanted {expectation.choices[number]}")


def _check_id(custom_id: object, number: int, line: bytes, status: int) -> None:
    ids, clean = find_ids(line)
    if custom_id is None:
        if status == 200 or (clean and ids - {""}):
            raise CaseError(f"line {number}: custom_id lost")
    elif ids and custom_id not in ids:
        raise CaseError(f"line {number}: custom_id {custom_id!r} is not this line's")


def _allows_status(option: str, status: int) -> bool:
    return status // 100 == int(option[0]) if option.endswith("xx") else status == int(option)


def _read_result(line: bytes, number: int) -> dict[str, Any]:
    try:
        result = json.loads(line.decode("utf-8"), parse_constant=_refuse_constant)
    except ValueError as error:
        raise CaseError(f"output line {number} is not strict JSON in UTF-8: {error}") from error
    if not isinstance(result, dict):
        raise CaseError(f"output line {number} is not an object")
    if _holds_lone_surrogate(result):
        raise CaseError(f"output line {number} holds a lone surrogate")
    return result


def _refuse_constant(token: str) -> None:
    raise CaseError(f"the output holds the token {token}, which is not JSON")


def _holds_lone_surrogate(value: object) -> bool:
    return re.search("[\ud800-\udfff]", json.dumps(value, ensure_ascii=False)) is not None


def _unescape(text: str) -> str | None:
    try:
        return str(json.loads(f'"{text}"'))
    except ValueError:
        return None


def _pairs(value: object) -> list[tuple[str, object]]:
    if not isinstance(value, tuple):
        return []
    return [pair for pair in value if isinstance(pair, tuple) and len(pair) == 2]
