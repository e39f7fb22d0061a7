"""Inputs of any length, written on the fly, and whether the ordered file is what they must come to."""

import base64
import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.rows import SEED, line

MODEL = "zero-cost"
REPEATS = 100
"""Lines near the end whose custom_id an early line has."""


class Shape(NamedTuple):
    """What the rows of an input look like."""

    rows: int
    text_bytes: int | None
    """Length of each request's text, and of its answer's; None: a few words."""

    @property
    def name(self) -> str:
        """`1,000,000`, `100,000 of 32 KiB`."""
        return f"{self.rows:,}" if self.text_bytes is None else f"{self.rows:,} of {self.text_bytes // 1024} KiB"

    def owner(self, seq: int) -> int:
        """The line whose custom_id the line `seq` has: mostly its own."""
        every = max(1, self.rows // (10 * REPEATS))
        nth, rest = divmod(seq - (self.rows - self.rows // 10), every)
        return nth * self.rows // (2 * REPEATS) if nth >= 0 and rest == 0 and nth < REPEATS else seq


def write_input(path: Path, shape: Shape) -> None:
    """The requests of `shape`; long texts are of random letters, one word each, and hardly get smaller when packed."""
    random_ = random.Random(SEED)
    tokens = 8 if shape.text_bytes is None else 1
    body = {"model": MODEL, "messages": [{"role": "user", "content": "<text>"}], "max_tokens": tokens}
    template = line("<id>", body)
    with path.open("w", encoding="utf-8") as file:
        for seq in range(shape.rows):
            text = f"say {seq}"
            if shape.text_bytes is not None:
                text = base64.b64encode(random_.randbytes(shape.text_bytes * 3 // 4)).decode()
            file.write(template.replace("<id>", custom_id(shape.owner(seq))).replace("<text>", text))


def custom_id(seq: int) -> str:
    """What the line `seq` calls itself."""
    return f"row-{seq:08d}"


def check_output(path: Path, shape: Shape, *, job: str) -> None:
    """Raises `AssertionError` unless each line of `shape` has its one right result, in order."""
    seq = -1
    for seq, got in enumerate(_lines(path)):
        owner = shape.owner(seq)
        head = f'{{"id":"{job}-{seq}","custom_id":"{custom_id(owner)}"'.encode()
        assert got.startswith(head), f"line {seq + 1} is {got[:200]!r}"
        right = b'"error":null' if owner == seq else b'"code":"duplicate_custom_id"'
        assert right in got, f"line {seq + 1} is {got[:400]!r}"
    assert seq + 1 == shape.rows, f"{seq + 1:,} results for {shape.rows:,} rows"


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb", buffering=1 << 20) as file:
        yield from file
