"""The documents say what the code does: each knob, verb and metric stands in them, each link leads somewhere."""

import re
from pathlib import Path

import pytest
from typer.main import get_command

from common.log import Event
from common.settings import Settings
from producer.cli import app as producer_app
from worker.cli import app as worker_app

ROOT = Path(__file__).parent.parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def text(*names: str) -> str:
    """The text of documents by name."""
    return "\n".join((ROOT / name).read_text(encoding="utf-8") for name in names)


def test_every_setting_is_documented() -> None:
    documented = set(re.findall(r"^\| `(\w+)` \|", text("docs/configuration.md"), re.M))
    assert documented == set(Settings.model_fields)


@pytest.mark.parametrize(("name", "app"), [("producer", producer_app), ("worker", worker_app)])
def test_every_verb_is_in_the_readme(name: str, app: object) -> None:
    verbs = get_command(app).commands  # type: ignore[arg-type,attr-defined]
    missing = [verb for verb in verbs if f"{name} {verb}" not in text("README.md")]
    assert not missing


def test_every_documented_command_exists() -> None:
    """Those of blocks of code; a sentence may begin with `worker` too."""
    for document in DOCUMENTS:
        blocks = "\n".join(re.findall(r"^ *```.*?\n(.*?)^ *```", document.read_text(encoding="utf-8"), re.M | re.S))
        for name, verb in re.findall(r"^\s*\$? ?(?:BAKEHOUSE_\S+ )*(producer|worker) ([a-z]+)", blocks, re.M):
            app = producer_app if name == "producer" else worker_app
            assert verb in get_command(app).commands, f"{document.name}: {name} {verb}"  # type: ignore[attr-defined]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text(encoding="utf-8")):
        assert (document.parent / target).exists(), target


def test_event_names_are_noun_verbed() -> None:
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)+", event) for event in Event)


def test_the_project_speaks_of_itself_alone() -> None:
    for document in DOCUMENTS:
        for foreign in ("/" + "work/", "/" + "root/", "../" + "shared"):
            assert foreign not in document.read_text(encoding="utf-8"), document
