"""The house's sizes: a file is at most 300 lines, a function 40. No exemptions."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

FILE_LINES = 300
FUNCTION_LINES = 40


def too_long(path: Path) -> Iterator[str]:
    """A line of text for each thing in `path` that is over its size."""
    source = path.read_text(encoding="utf-8")
    lines = source.count("\n")
    if lines > FILE_LINES:
        yield f"{path}: {lines} lines, at most {FILE_LINES}"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES:
                yield f"{path}:{node.lineno}: {node.name} has {length} lines, at most {FUNCTION_LINES}"


def main(folders: list[str]) -> int:
    """Print what is too long in `folders`; 1 if anything is."""
    found = [line for folder in folders for path in sorted(Path(folder).rglob("*.py")) for line in too_long(path)]
    print("\n".join(found) or "sizes: all within bounds")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
