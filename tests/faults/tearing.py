"""Files as a crash leaves them: cut in the middle of a line, or ended by the zeros of pages that were never written."""

import os
from pathlib import Path


def tear(path: Path, *, keep_lines: int, more_bytes: int, zeros: int = 0) -> bytes:
    """Leave of `path` so many whole lines, some bytes of the next one, and zeros; returns the whole lines."""
    lines = path.read_bytes().split(b"\n")
    assert keep_lines < len(lines) - 1, "too few lines"
    assert 0 < more_bytes < len(lines[keep_lines]), "that would not tear a line"
    whole = b"".join(line + b"\n" for line in lines[:keep_lines])
    path.write_bytes(whole + lines[keep_lines][:more_bytes] + bytes(zeros))
    return whole


def cut(path: Path, *, to_bytes: int) -> int:
    """Leave the first bytes of `path`; returns how many there were."""
    size = path.stat().st_size
    assert to_bytes < size, "nothing was cut"
    os.truncate(path, to_bytes)
    return size
