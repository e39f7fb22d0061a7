"""The units of examples/deploy/systemd, read as systemd reads them."""

import re
import shlex
from pathlib import Path

from tests.processes import ROOT

SYSTEMD = ROOT / "examples" / "deploy" / "systemd"
UNITS = sorted(SYSTEMD.glob("*.service"))


def read_unit(path: Path) -> dict[str, list[str]]:
    """The settings of a unit, each with its values in order."""
    settings: dict[str, list[str]] = {}
    for name, text in re.findall(r"^(\w+)=(.*)$", path.read_text(), re.M):
        settings.setdefault(name, []).append(text)
    return settings


def variables_of(unit: dict[str, list[str]]) -> dict[str, str]:
    """What a unit sets, and what its file of variables adds."""
    words = [word for line in unit["Environment"] for word in shlex.split(line)]
    (file,) = unit["EnvironmentFile"]
    lines = (SYSTEMD / Path(file).name).read_text().splitlines()
    return dict(word.split("=", 1) for word in [*words, *(line for line in lines if line and line[0] != "#")])


def command_of(unit: dict[str, list[str]]) -> list[str]:
    """What it starts, its variables filled in."""
    (command,) = unit["ExecStart"]
    variables = variables_of(unit)
    return [re.sub(r"\$\{(\w+)\}", lambda found: variables[found[1]], word) for word in shlex.split(command)]
