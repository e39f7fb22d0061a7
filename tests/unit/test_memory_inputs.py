"""The judge of the memory benchmark: which lines repeat an id, and what an ordered file must be."""

import json
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.memory.inputs import REPEATS, Shape, check_output, custom_id, write_input


@pytest.mark.parametrize("rows", [1_000, 10_000, 1_234_567, 10_000_000])
def test_lines_near_the_end_repeat_early_ids(rows: int) -> None:
    shape = Shape(rows, None)
    owners = {seq: owner for seq in range(rows * 9 // 10 - 1, rows) if (owner := shape.owner(seq)) != seq}
    assert len(owners) == len(set(owners.values())) == REPEATS
    assert max(owners.values()) < rows // 2
    assert all(shape.owner(owner) == owner for owner in owners.values())


def test_long_texts_are_as_long_as_asked(tmp_path: Path) -> None:
    path, shape = tmp_path / "in.jsonl", Shape(1_000, 3_000)
    write_input(path, shape)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert Counter(len(row["body"]["messages"][0]["content"]) for row in rows) == {3_000: 1_000}
    assert Counter(Counter(row["custom_id"] for row in rows).values()) == {1: 800, 2: REPEATS}


def _results(shape: Shape) -> list[str]:
    return [
        f'{{"id":"j-{seq}","custom_id":"{custom_id(shape.owner(seq))}",'
        + ('"error":null}' if shape.owner(seq) == seq else '"error":{"code":"duplicate_custom_id"}}')
        for seq in range(shape.rows)
    ]


def test_only_the_right_file_passes(tmp_path: Path) -> None:
    path, shape = tmp_path / "out.jsonl", Shape(1_000, None)
    right = _results(shape)
    path.write_text("\n".join(right) + "\n")
    check_output(path, shape, job="j")
    twice = [*right[:950], right[950].replace('{"code":"duplicate_custom_id"}', "null"), *right[951:]]
    for wrong in (right[:-1], [*right, right[-1]], [right[1], right[0], *right[2:]], twice):
        path.write_text("\n".join(wrong) + "\n")
        with pytest.raises(AssertionError):
            check_output(path, shape, job="j")
