"""The tables of docs/metrics.md say of every metric what the code says of it."""

import re
from pathlib import Path
from types import ModuleType

import pytest

from tests.metric_families import DO, MODULES, Family, all_families, families_of

PAGE = Path(__file__).parent.parent.parent / "docs" / "metrics.md"
UNITS = {
    "_seconds": "s",
    "_seconds_total": "s",
    "_bytes": "bytes",
    "_bytes_total": "bytes",
    "_tokens_total": "tokens",
    "_results_total": "results",
    "_requests": "requests",
    "_in_flight": "requests",
    "_target": "requests",
    "_holds": "micro-batches",
    "_workers": "workers",
    "_job_tokens": "tokens",
    "_jobs": "jobs",
    "_hints": "hints",
    "_entries": "entries",
    "_cost": "money",
    "_up": "0 or 1",
    "_watts": "W",
    "_ratio": "0 to 1",
    "_total": "count",
}
"""By how the name ends; the first that fits."""


def unit_of(family: Family) -> str:
    """The unit in the name; "" where there is none."""
    return next((unit for suffix, unit in UNITS.items() if family.name.endswith(suffix)), "")


def row_of(family: Family) -> str:
    """The row that the page must have for `family`."""
    labels = ", ".join(f"`{label}`" for label in family.labels)
    what, _, advice = family.documentation.partition(DO)
    does = f"{advice[:1].upper()}{advice[1:]}"
    return f"| `{family.name}` | {family.type} | {unit_of(family)} | {labels} | {what} | {does} |"


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_every_metric_has_its_row(module: ModuleType) -> None:
    families = list(families_of(module))
    assert len(families) >= 5
    assert [family.name for family in families if DO not in family.documentation] == []
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    assert [row for family in families if (row := row_of(family)) not in lines] == []


def test_no_row_is_without_a_metric() -> None:
    rows = re.findall(r"^\| `(bakehouse_\w+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(rows) == sorted(family.name for family in all_families())


def test_every_metric_has_a_unit_in_its_name() -> None:
    assert [family.name for family in all_families() if not unit_of(family)] == []
