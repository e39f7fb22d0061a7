"""docker-compose.yml as compose sees it, and what a service finds around its command: for tests without an engine."""

import re
from pathlib import Path
from typing import Any

import yaml

from tests.processes import ROOT

COMPOSE = ROOT / "docker-compose.yml"
GIVEN = {"SECRETS_GID": "4242"}
"""What .env must say; the rest has defaults."""


def read_compose(path: Path = COMPOSE, **variables: str) -> dict[str, Any]:
    """The file with variables replaced, anchors merged, extensions dropped."""
    read = yaml.safe_load(interpolate(path.read_text(), {**GIVEN, **variables}))
    return {key: value for key, value in read.items() if not key.startswith("x-")}


def interpolate(text: str, environment: dict[str, str]) -> str:
    """`text` with `${NAME:-default}` and `${NAME:?message}` replaced, as compose does it."""

    def value(found: re.Match[str]) -> str:
        name, kind, word = found.groups()
        if name in environment:
            return environment[name]
        assert kind == ":-", f"{name} has no default"
        return str(word)

    return re.sub(r"(?<!\$)\$\{(\w+)(:[-?])([^}]*)\}", value, text)


def our_services(compose: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Services that run our own commands."""
    return {name: service for name, service in compose["services"].items() if "build" in service}


def command_of(service: dict[str, Any]) -> list[str]:
    """What the container runs; `$$` is how compose is told a `$`."""
    return [word.replace("$$", "$") for word in service["command"]]


def health_command(service: dict[str, Any]) -> list[str]:
    """What the container's health is asked by."""
    kind, *words = [word.replace("$$", "$") for word in service["healthcheck"]["test"]]
    return words if kind == "CMD" else ["sh", "-c", *words]


def image_environment(path: Path = ROOT / "Dockerfile") -> dict[str, str]:
    """What our images set for every process, without PATH."""
    stage = re.split(r"^FROM \S+ AS run$", path.read_text(), flags=re.M)[1]
    (line,) = re.findall(r"^ENV (.+)$", stage.partition("\nFROM ")[0], re.M)
    pairs = dict(pair.split("=", 1) for pair in line.split())
    return {name: value for name, value in pairs.items() if name != "PATH"}
