"""What stands in examples/deploy: valid by the schema or the parser of each kind, and true to our code."""

import configparser
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from compose_spec import PyCompose, parse_duration
from typer.core import TyperGroup
from typer.main import get_command

from common.settings import Settings
from producer.cli import app as producer_app
from tests.compose_file import read_compose
from tests.processes import ROOT
from tests.systemd_units import UNITS, command_of, read_unit, variables_of
from worker.cli import app as worker_app

DEPLOY = ROOT / "examples" / "deploy"
SUPERVISOR_MARGIN_S = 10
"""The supervisor ends the group so long after the drain timeout."""
KUBERNETES = ("1.30", "1.37")
SCRIPTS = sorted([*DEPLOY.glob("slurm/*.sbatch"), DEPLOY / "make-secrets"])
SCALED_OBJECT = {
    "type": "object",
    "additionalProperties": False,
    "required": ["scaleTargetRef", "triggers"],
    "properties": {
        "scaleTargetRef": {"type": "object", "required": ["name"]},
        "pollingInterval": {"type": "integer"},
        "cooldownPeriod": {"type": "integer"},
        "minReplicaCount": {"type": "integer"},
        "maxReplicaCount": {"type": "integer"},
        "advanced": {"type": "object"},
        "triggers": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["type", "metadata"],
                "properties": {"metadata": {"type": "object", "additionalProperties": {"type": "string"}}},
            },
        },
    },
}
"""What KEDA takes of one; its values in `metadata` are all strings."""


def check_command(words: list[str]) -> None:
    """`words` are a verb of ours with flags that it has."""
    app = {"producer": producer_app, "worker": worker_app}[Path(words[0]).name]
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    group.commands[words[1]].make_context(words[1], words[2:])


def check_knobs(variables: dict[str, str]) -> None:
    """Every variable of ours is a knob, with a value that it takes."""
    knobs = {name.removeprefix("BAKEHOUSE_").lower(): text for name, text in variables.items() if "BAKEHOUSE_" in name}
    Settings.model_validate(knobs)


def manifests() -> Iterator[dict[str, Any]]:
    """Every object for Kubernetes."""
    for path in sorted(DEPLOY.glob("kubernetes/*.yaml")):
        for read in yaml.safe_load_all(path.read_text()):
            if read["kind"] != "Kustomization":
                yield read


def pods() -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and pod of each of them that makes pods."""
    for read in manifests():
        if "template" in read["spec"]:
            yield read["metadata"]["name"], read["spec"]["template"]["spec"]


@pytest.mark.parametrize("version", KUBERNETES)
def test_kubernetes_takes_the_manifests(version: str) -> None:
    own = [read for read in manifests() if read["apiVersion"] != "keda.sh/v1alpha1"]
    assert [read["kind"] for read in own].count("StatefulSet") == 2
    for read in own:
        kubernetes_validate.validate(read, version, strict=True)
        with pytest.raises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate({**read, "sepc": {}}, version, strict=True)


def test_kustomize_builds_them() -> None:
    listed = yaml.safe_load((DEPLOY / "kubernetes" / "kustomization.yaml").read_text())
    assert [name for name in listed["resources"] if not (DEPLOY / "kubernetes" / name).exists()] == []
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    built = subprocess.run(
        ["kubectl", "kustomize", str(DEPLOY / "kubernetes")], capture_output=True, text=True, timeout=120, check=True
    )
    images = {
        container["image"]
        for read in yaml.safe_load_all(built.stdout)
        for container in read["spec"].get("template", {}).get("spec", {}).get("containers", [])
    }
    renamed = {f"{image['newName']}:{image['newTag']}" for image in listed["images"]}
    assert renamed < images, "each image that is renamed is used"


def test_keda_scales_workers_by_a_metric_that_is_there() -> None:
    (scaled,) = [read for read in manifests() if read["kind"] == "ScaledObject"]
    jsonschema.validate(scaled["spec"], SCALED_OBJECT)
    names = [read["metadata"]["name"] for read in manifests() if read["kind"] == "Deployment"]
    assert scaled["spec"]["scaleTargetRef"]["name"] in names
    (trigger,) = scaled["spec"]["triggers"]
    asked = set(re.findall(r"bakehouse_\w+", trigger["metadata"]["query"]))
    assert asked <= set(re.findall(r"`(bakehouse_\w+)`", (ROOT / "docs" / "metrics.md").read_text()))
    assert asked


def test_pods_run_our_commands_and_are_asked_for_progress() -> None:
    ours = {name: pod for name, pod in pods() if name != "redis"}
    assert set(ours) == {"collector", "worker"}
    for pod in ours.values():
        (container,) = pod["containers"]
        check_command(container["command"])
        check_knobs({each["name"]: each["value"] for each in container["env"] if "value" in each})
        port = {"name": "metrics", "containerPort": int(env_of(container)["BAKEHOUSE_METRICS_PORT"])}
        assert container["ports"] == [port]
        assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "metrics"}
    worker = ours["worker"]
    drain_s = float(env_of(worker["containers"][0])["BAKEHOUSE_DRAIN_TIMEOUT_S"])
    assert worker["terminationGracePeriodSeconds"] > drain_s + SUPERVISOR_MARGIN_S


def env_of(container: dict[str, Any]) -> dict[str, str]:
    """Its variables that are given as they are."""
    return {each["name"]: each["value"] for each in container["env"] if "value" in each}


def test_pods_are_no_root_and_keep_secrets_to_themselves() -> None:
    for name, pod in pods():
        assert pod["securityContext"]["runAsNonRoot"], name
        (secret,) = [volume["secret"] for volume in pod["volumes"] if "secret" in volume]
        assert secret["defaultMode"] & 0o007 == 0, "our commands refuse what everybody may read"


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_units_run_our_commands(path: Path) -> None:
    unit = read_unit(path)
    variables = variables_of(unit)
    check_command(command_of(unit))
    check_knobs({name: text for name, text in variables.items() if "%d" not in text})
    assert unit["Restart"] == ["on-failure"]
    assert unit["RestartPreventExitStatus"] == ["2"], "what is refused stays refused"


def test_a_unit_gives_a_worker_time_to_drain() -> None:
    unit = read_unit(DEPLOY / "systemd" / "bakehouse-worker.service")
    drain_s = float(variables_of(unit)["BAKEHOUSE_DRAIN_TIMEOUT_S"])
    assert float(unit["TimeoutStopSec"][0]) > drain_s + SUPERVISOR_MARGIN_S
    assert unit["KillMode"] == ["mixed"], "the supervisor drains; a signal to all would end the engines"
    assert unit["OOMPolicy"] == ["continue"]


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_systemd_takes_the_units(path: Path, tmp_path: Path) -> None:
    parser = configparser.RawConfigParser(strict=False)
    parser.read_string(path.read_text())
    assert parser.sections() == ["Unit", "Service", "Install"]
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    here = path.read_text().replace("/opt/bakehouse/bin/", f"{Path(sys.executable).parent}/")
    assert complaints(tmp_path / path.name, here) == []
    wrong = here.replace("Restart=on-failure", "Restart=sometimes")
    assert len(complaints(tmp_path / f"wrong-{path.name}", wrong)) == 1


def complaints(path: Path, text: str) -> list[str]:
    """What systemd says of the unit `text`, written to `path`."""
    path.write_text(text)
    asked = ["systemd-analyze", "verify", "--man=no", str(path)]
    said = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=False)
    return [line for line in said.stderr.splitlines() if path.name in line]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_scripts_are_sound(path: Path) -> None:
    subprocess.run(["bash", "-n", path], check=True)
    checked = subprocess.run(
        [Path(sys.executable).parent / "shellcheck", path], capture_output=True, text=True, timeout=60, check=False
    )
    assert checked.returncode == 0, checked.stdout


def test_a_node_by_compose_is_the_worker_of_the_whole() -> None:
    node = read_compose(DEPLOY / "compose" / "node.yml", REDIS_URL="redis://head:6379/0")
    PyCompose.from_yaml(yaml.safe_dump(node)).to_spec()
    worker, whole = node["services"]["worker"], read_compose()["services"]["worker"]
    same = (
        "command",
        "build",
        "secrets",
        "group_add",
        "volumes",
        "healthcheck",
        "stop_grace_period",
        "deploy",
        "restart",
    )
    assert {key: worker[key] for key in same} == {key: whole[key] for key in same}
    assert worker["environment"] == {**whole["environment"], "BAKEHOUSE_REDIS_URL": "redis://head:6379/0"}
    assert worker["network_mode"] == "host"
    assert parse_duration(worker["stop_grace_period"]) > Settings().drain_timeout_s + SUPERVISOR_MARGIN_S
