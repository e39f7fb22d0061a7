"""docker-compose.yml and Dockerfile: valid by the specification, closed to the network, and true to our code."""

import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from compose_spec import PyCompose, parse_duration
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from typer.core import TyperGroup
from typer.exceptions import TyperException
from typer.main import get_command

from common.settings import Settings
from producer.cli import app as producer_app
from tests.compose_file import COMPOSE, our_services, read_compose
from tests.processes import ROOT
from worker.cli import app as worker_app

NEEDED_SECRETS = {
    "redis": ["redis_password"],
    "worker": ["redis_password", "hf_token"],
    "worker-cpu": ["redis_password", "hf_token"],
    "collector": ["redis_password"],
    "flower": ["redis_password", "flower_login"],
    "prometheus": [],
    "grafana": ["grafana_password"],
}
"""Each service has what it needs and nothing else."""
SUPERVISOR_MARGIN_S = 10
"""The supervisor ends the group so long after the drain timeout."""


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    """The file as compose sees it."""
    return read_compose()


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


def test_secrets_are_files_and_stand_nowhere_else(compose: dict[str, Any]) -> None:
    given = {name: service.get("secrets", []) for name, service in compose["services"].items()}
    assert given == NEEDED_SECRETS
    made = {name: f"./secrets/{name}" for names in NEEDED_SECRETS.values() for name in names}
    assert {name: secret["file"] for name, secret in compose["secrets"].items()} == made
    for name, service in compose["services"].items():
        assert ("group_add" in service) == bool(NEEDED_SECRETS[name]), name
        said = yaml.safe_dump({key: service.get(key) for key in ("environment", "command", "healthcheck")})
        read = set(re.findall(r"/run/secrets/(\w+)", said))
        assert read == set(NEEDED_SECRETS[name]), name
        assert not re.findall(r"(?i)(?:password|token|auth)(?!_file|_path|__file)\w*: (?!/run/secrets)\S", said), name


def test_variables_are_those_of_the_example() -> None:
    text = COMPOSE.read_text()
    offered = dict(re.findall(r"^(\w+)=(.*)$", (ROOT / ".env.example").read_text(), re.M))
    defaults = dict(re.findall(r"\$\{(\w+):-([^}]*)\}", text))
    asked = set(re.findall(r"\$\{(\w+):\?", text))
    assert asked == {"SECRETS_GID"}
    assert offered == {**defaults, **dict.fromkeys(asked, "")}


def test_secrets_are_made_once_and_for_few(tmp_path: Path) -> None:
    (tmp_path / ".env.example").write_text((ROOT / ".env.example").read_text())

    def make() -> dict[str, str]:
        subprocess.run([ROOT / "examples" / "deploy" / "make-secrets"], cwd=tmp_path, check=True, capture_output=True)
        return {path.name: path.read_text() for path in (tmp_path / "secrets").iterdir()}

    made = make()
    assert make() == made, "what is there stays"
    assert set(made) == {name for names in NEEDED_SECRETS.values() for name in names}
    assert re.fullmatch(r"[0-9a-f]{48}", made["redis_password"])
    assert re.fullmatch(r"bakehouse:[0-9a-f]{48}\n", made["flower_login"])
    assert made["hf_token"] == ""
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "secrets").iterdir()}
    assert modes == {0o640}
    assert f"SECRETS_GID={os.getgid()}\n" in (tmp_path / ".env").read_text()
    assert (tmp_path / "secrets").stat().st_mode & 0o007 == 0


def test_redis_keeps_its_log_and_evicts_nothing(compose: dict[str, Any]) -> None:
    service = compose["services"]["redis"]
    script = service["command"][-1]
    for needed in ("--appendonly yes", "--maxmemory-policy noeviction", "requirepass $$(cat /run/secrets/"):
        assert needed in script
    assert service["volumes"] == ["redis:/data"]


def test_everything_starts_again_and_may_finish(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        assert service["restart"] == "unless-stopped", name
    least = Settings().drain_timeout_s + SUPERVISOR_MARGIN_S
    for name in ("worker", "worker-cpu"):
        assert parse_duration(compose["services"][name]["stop_grace_period"]) > least, name


def test_health_is_progress(compose: dict[str, Any]) -> None:
    asked = {name: " ".join(service["healthcheck"]["test"]) for name, service in compose["services"].items()}
    for name, service in our_services(compose).items():
        port = service["environment"].get("BAKEHOUSE_METRICS_PORT")
        assert (f"127.0.0.1:{port}/healthz" if port else "/healthcheck") in asked[name]
    assert "aof_last_write_status:ok" in asked["redis"], "it must be able to keep what it is told"


def test_workers_scale(compose: dict[str, Any]) -> None:
    for name in ("worker", "worker-cpu"):
        service = compose["services"][name]
        assert not {"container_name", "hostname", "ports"} & set(service), "two containers cannot share these"
        assert "gpus:/home/bakehouse/.cache/bakehouse/gpus" in service["volumes"], "where they lock their GPUs"
    one_each = read_compose(GPUS="free")["services"]["worker"]["command"]
    assert "--gpus=free" in one_each


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
    home = compose["services"]["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert (ROOT / "grafana" / home.removeprefix("/etc/grafana/")).exists()


def test_each_image_is_pinned_and_has_no_root(compose: dict[str, Any]) -> None:
    text = (ROOT / "Dockerfile").read_text()
    stages = {
        name: (base, body)
        for base, name, body in re.findall(r"^FROM (\S+) AS (\S+)\n(.*?)(?=^FROM |\Z)", text, re.M | re.S)
    }
    wanted = {service["build"]["target"] for service in our_services(compose).values()}
    assert wanted == {"producer", "worker-gpu", "worker-cpu"}
    for name in wanted:
        base, body = stages[name]
        assert re.findall(r"^USER (\w+)$", body, re.M) == ["bakehouse"]
        assert f"COPY --from=build-{name} " in body
        assert f"-c constraints/{name}.txt" in stages[f"build-{name}"][1]
        while base in stages:
            base = stages[base][0]
        assert re.fullmatch(r"python:3\.\d+\.\d+-slim-\w+", base)
    images = [service["image"] for service in compose["services"].values() if "build" not in service]
    assert [image for image in images if not re.search(r":v?\d+\.\d+\.\d+", image)] == []


def test_what_the_image_is_built_from_reaches_the_builder() -> None:
    text = (ROOT / "Dockerfile").read_text()
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE)
    sources = {source for line in copied for source in line.split()}
    assert {"common", "producer", "worker", "pyproject.toml", "constraints"} <= sources
    let_through = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert sources == let_through
    assert [source for source in sources if not (ROOT / source).exists()] == []


@pytest.mark.parametrize("image", ["producer", "worker-gpu", "worker-cpu"])
def test_pins_are_within_what_the_package_asks_for(image: str) -> None:
    lines = (ROOT / "constraints" / f"{image}.txt").read_text().splitlines()
    pins = {
        canonicalize_name(name): version for name, version in (line.split("==") for line in lines if line[0] != "#")
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extra = {"producer": "monitor"}.get(image, image.removeprefix("worker-"))
    for text in [*project["dependencies"], *project["optional-dependencies"][extra]]:
        asked = Requirement(text)
        assert asked.specifier.contains(pins[canonicalize_name(asked.name)].partition("+")[0]), text


def test_passwords_are_not_committed() -> None:
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    assert {"/.env", "/secrets/"} <= set(ignored)
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
