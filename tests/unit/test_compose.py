"""docker-compose.yml and Dockerfile: valid by the specification, closed to the network, and true to our code."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from compose_spec import PyCompose, parse_duration
from typer.core import TyperGroup
from typer.exceptions import TyperException
from typer.main import get_command

from common.settings import Settings
from producer.cli import app as producer_app
from worker.cli import app as worker_app

ROOT = Path(__file__).parent.parent.parent
ENVIRONMENT = {
    "REDIS_PASSWORD": "5ecret",
    "FLOWER_BASIC_AUTH": "cook:5ecret",
    "GRAFANA_PASSWORD": "5ecret",
}
SUPERVISOR_MARGIN_S = 10
"""The supervisor ends the group so long after the drain timeout."""


def interpolate(text: str, environment: dict[str, str]) -> str:
    """`text` with `${NAME:-default}` and `${NAME:?message}` replaced, as compose does it."""

    def value(found: re.Match[str]) -> str:
        name, kind, word = found.groups()
        if name in environment:
            return environment[name]
        assert kind == ":-", f"{name} has no default"
        return str(word)

    return re.sub(r"\$\{(\w+)(:[-?])([^}]*)\}", value, text)


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    """The file as compose sees it: variables replaced, anchors merged, extensions dropped."""
    read = yaml.safe_load(interpolate((ROOT / "docker-compose.yml").read_text(), ENVIRONMENT))
    return {key: value for key, value in read.items() if not key.startswith("x-")}


def our_services(compose: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Services that run our own commands."""
    return {name: service for name, service in compose["services"].items() if "build" in service}


def test_it_keeps_the_compose_specification(compose: dict[str, Any]) -> None:
    parsed = PyCompose.from_yaml(yaml.safe_dump(compose))
    parsed.to_spec()
    assert sorted(parsed.service_names()) == sorted(
        ["redis", "worker", "worker-cpu", "collector", "flower", "prometheus", "grafana"]
    )


def test_the_specification_refuses_what_is_wrong(compose: dict[str, Any]) -> None:
    for wrong in ({"prots": ["1:1"]}, {"restart": "sometimes"}, {"stop_grace_period": "soon"}):
        services = {**compose["services"], "redis": {**compose["services"]["redis"], **wrong}}
        with pytest.raises(ValueError, match=r"services"):
            PyCompose.from_yaml(yaml.safe_dump({**compose, "services": services}))


def test_ports_are_on_loopback_alone(compose: dict[str, Any]) -> None:
    published = [port for service in compose["services"].values() for port in service.get("ports", [])]
    assert len(published) == 4
    assert [port for port in published if not str(port).startswith("127.0.0.1:")] == []
    assert not any("network_mode" in service for service in compose["services"].values())


def test_passwords_come_from_the_environment() -> None:
    text = (ROOT / "docker-compose.yml").read_text()
    asked = set(re.findall(r"\$\{(\w+):\?", text))
    assert asked == set(ENVIRONMENT)
    offered = dict(line.split("=", 1) for line in (ROOT / ".env.example").read_text().splitlines() if "=" in line)
    assert asked <= set(offered)
    assert {name: offered[name] for name in asked} == dict.fromkeys(asked, "")
    optional = set(re.findall(r"\$\{(\w+):-", text)) - {"HF_TOKEN"}
    assert set(offered) - asked == optional


def test_redis_keeps_its_log_and_evicts_nothing(compose: dict[str, Any]) -> None:
    service = compose["services"]["redis"]
    script = service["command"][-1]
    for needed in ("--appendonly yes", "--maxmemory-policy noeviction", "requirepass $$REDIS_PASSWORD"):
        assert needed in script
    assert service["volumes"] == ["redis:/data"]


def test_everything_starts_again_and_may_finish(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        assert service["restart"] == "unless-stopped", name
    least = Settings().drain_timeout_s + SUPERVISOR_MARGIN_S
    for name in ("worker", "worker-cpu"):
        assert parse_duration(compose["services"][name]["stop_grace_period"]) > least, name


def test_every_knob_exists(compose: dict[str, Any]) -> None:
    for service in our_services(compose).values():
        knobs = {name for name in service["environment"] if name.startswith("BAKEHOUSE_")}
        assert "BAKEHOUSE_REDIS_URL" in knobs
        unknown = {knob for knob in knobs if knob.removeprefix("BAKEHOUSE_").lower() not in Settings.model_fields}
        assert unknown == set()


def test_the_gpu_worker_reserves_gpus(compose: dict[str, Any]) -> None:
    devices = compose["services"]["worker"]["deploy"]["resources"]["reservations"]["devices"]
    assert devices == [{"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}]
    assert "deploy" not in compose["services"]["worker-cpu"]
    profiles = {name: service.get("profiles") for name, service in compose["services"].items()}
    assert {name: profile for name, profile in profiles.items() if profile} == {
        "worker": ["gpu"],
        "worker-cpu": ["cpu"],
    }


def test_prometheus_asks_the_collector_who_is_there(compose: dict[str, Any]) -> None:
    texts = [(ROOT / "prometheus" / name).read_text() for name in ("compose.yml", "prometheus.yml")]
    ours, local = map(yaml.safe_load, texts)
    port = compose["services"]["collector"]["environment"]["BAKEHOUSE_METRICS_PORT"]
    (job,) = ours["scrape_configs"]
    assert [asked["url"] for asked in job["http_sd_configs"]] == [f"http://collector:{port}/targets"]
    assert yaml.safe_load(texts[0].replace("collector:", "127.0.0.1:")) == local, "but for the name they are the same"
    for name, service in our_services(compose).items():
        serves = "BAKEHOUSE_METRICS_PORT" in service["environment"]
        assert serves == name.startswith(("worker", "collector")), name
        assert service["environment"]["BAKEHOUSE_METRICS_HOST"] == "0.0.0.0", "told by its address towards Redis"


def test_mounted_files_are_here_and_volumes_declared(compose: dict[str, Any]) -> None:
    sources = [v.split(":")[0] for s in compose["services"].values() for v in s.get("volumes", [])]
    assert [source for source in sources if source.startswith(".") and not (ROOT / source).exists()] == []
    assert {source for source in sources if not source.startswith(".")} == set(compose["volumes"])


def test_the_image_has_all_packages_and_no_root() -> None:
    text = (ROOT / "Dockerfile").read_text()
    final = text.rpartition("\nFROM ")[2]
    assert re.findall(r"^USER (\w+)$", final, re.MULTILINE) == ["bakehouse"]
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE)
    sources = {source for line in copied for source in line.split()}
    assert {"common", "producer", "worker", "pyproject.toml"} <= sources
    assert [source for source in sources if not (ROOT / source).exists()] == []


def test_the_passwords_file_is_not_committed() -> None:
    assert "/.env" in (ROOT / ".gitignore").read_text().splitlines()
    assert (ROOT / ".dockerignore").read_text().splitlines()[1] == "*"


def test_every_command_is_a_verb_with_its_flags(compose: dict[str, Any]) -> None:
    verbs = {"producer": get_command(producer_app), "worker": get_command(worker_app)}
    for name, service in our_services(compose).items():
        program, *arguments = service["command"]
        group = verbs[program]
        assert isinstance(group, TyperGroup)
        verb = group.commands[arguments[0]]
        verb.make_context(arguments[0], arguments[1:])
        with pytest.raises(TyperException):
            verb.make_context(name, ["--no-such-flag", *arguments[1:]])
