"""The contract in the documentation names every script with its keys and its answers, and no other."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
SCRIPTS = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "common" / "scripts").glob("*.lua")}
ROWS = {
    found.group(1): found.group(0)
    for found in re.finditer(r"^\| `(\w+)` \|.*\|.*\|.*\|$", (ROOT / "docs/redis-contract.md").read_text("utf-8"), re.M)
}


def test_the_table_has_every_script_and_no_other() -> None:
    assert len(SCRIPTS) == 13
    assert set(ROWS) == set(SCRIPTS)


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_the_row_has_the_keys_and_answers_of_the_script(name: str) -> None:
    _, _, row_keys, row_arguments, answers, _ = ROWS[name].split("|")
    keys = re.search(r"^-- KEYS +(.+)$", SCRIPTS[name], re.M)
    arguments = re.search(r"^-- ARGV +(.+?)(?:   .*)?$", SCRIPTS[name], re.M)
    assert keys
    assert arguments
    assert row_keys.strip() == keys.group(1)
    assert row_arguments.strip() == arguments.group(1).replace("lifetime_s", "lifetime")
    for word in re.findall(r'return \{?"([A-Z_]+)"', SCRIPTS[name]):
        assert f"`{word}`" in answers, f"{name} answers {word}"
