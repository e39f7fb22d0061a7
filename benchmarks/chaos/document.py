"""docs/kill-matrix.json: every run of chaos in one line, under what they have in common; the source of the page."""

import json
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent.parent.parent / "docs"
SOURCE = DOCS / "kill-matrix.json"


def read_document(path: Path = SOURCE) -> dict[str, Any]:
    """As it was written."""
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document


def write_document(path: Path, document: dict[str, Any]) -> None:
    """Write it so that two versions can be compared line by line."""
    head = {name: value for name, value in document.items() if name != "runs"}
    facts = "".join(f"  {json.dumps(name)}: {json.dumps(value)},\n" for name, value in head.items())
    runs = ",\n".join(f"    {json.dumps(run)}" for run in document["runs"])
    path.write_text(f'{{\n{facts}  "runs": [\n{runs}\n  ]\n}}\n', encoding="utf-8")
