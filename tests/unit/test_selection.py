"""Which results a rerun asks for: what was typed, as a condition on the journal's rows."""

import sqlite3

import pytest

from common.errors import ErrorKind, RefusedError
from producer.selection import NEVER_RAN, Selection

RESULTS = {
    0: (200, "", 1),
    1: (503, "overloaded", 4),
    2: (500, "engine_error", 4),
    3: (504, "timeout", 2),
    4: (400, "invalid_json", 0),
    5: (404, "model_not_found", 0),
    6: (404, "model_not_found", 1),
    7: (500, "worker_lost", 0),
    8: (499, "cancelled", 0),
}


def chosen(selection: Selection) -> list[int]:
    """The seqs of `RESULTS` that `selection` takes; 1, 3 and 4 are those named by id."""
    with sqlite3.connect(":memory:") as connection:
        connection.execute("CREATE TABLE result (seq, status, code, attempts)")
        connection.execute("CREATE TABLE named AS SELECT 1 AS seq UNION SELECT 3 UNION SELECT 4")
        connection.executemany("INSERT INTO result VALUES (?, ?, ?, ?)", ((seq, *row) for seq, row in RESULTS.items()))
        where, values = selection.condition()
        ask = f"SELECT seq FROM result WHERE {where} AND NOT {NEVER_RAN} ORDER BY seq"
        return [seq for (seq,) in connection.execute(ask, values)]


@pytest.mark.parametrize(
    ("codes", "statuses", "seqs"),
    [
        ([], [], [1, 2, 3, 6, 7, 8]),
        (["timeout"], [], [3]),
        (["timeout", "overloaded", "timeout"], [], [1, 3]),
        ([], ["5xx"], [1, 2, 3, 7]),
        ([], ["503", "499"], [1, 8]),
        ([], ["200"], [0]),
        ([], ["2XX", "504"], [0, 3]),
        (["engine_error"], ["503"], []),
        (["model_not_found"], ["4xx"], [6]),
    ],
)
def test_what_is_chosen(codes: list[str], statuses: list[str], seqs: list[int]) -> None:
    assert chosen(Selection.make(codes, statuses)) == seqs


def test_ids_narrow() -> None:
    assert chosen(Selection(ids="some")) == [1, 3]
    assert chosen(Selection(ids="some", codes=("timeout",))) == [3]


def test_the_same_selection_is_the_same_text() -> None:
    one, other = Selection.make(["timeout", "overloaded"], ["5XX"]), Selection.make(["overloaded", "timeout"], ["5xx"])
    assert one.to_json() == other.to_json()
    assert one.to_json() != Selection.make([], ["5xx"]).to_json()


@pytest.mark.parametrize("status", ["5x", "600", "50", "x", "5xx ", "0xx", "5000"])
def test_a_status_that_is_none_is_refused(status: str) -> None:
    with pytest.raises(RefusedError, match="no status"):
        Selection.make([], [status])


def test_a_code_that_no_result_has_is_refused_with_those_there_are() -> None:
    with pytest.raises(RefusedError, match="'time_out'") as refused:
        Selection.make(["time_out"], [])
    assert all(kind.value in refused.value.do for kind in ErrorKind)
