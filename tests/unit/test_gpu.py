"""Which GPUs a worker sees: the driver's list, the user's choice, the groups, the environment."""

from pathlib import Path

import pytest

from common.errors import RefusedError
from common.settings import load
from worker.gpu import Gpu, environment_of, group, label, list_gpus, parse_gpus, select
from worker.launch import plan_workers
from worker.options import WorkerOptions

FIRST = "GPU-5c2a9d1e-0000-1111-2222-333344445555"
SECOND = "GPU-77777777-0000-1111-2222-333344445555"
LISTING = f"0, {FIRST}, NVIDIA H200, 143771\n1, {SECOND}, NVIDIA H200, [N/A]\n"
FOUND = [Gpu(0, FIRST, "NVIDIA H200", 143771), Gpu(1, SECOND, "NVIDIA H200", 0)]


def install_nvidia_smi(monkeypatch: pytest.MonkeyPatch, folder: Path, script: str) -> None:
    """A program `nvidia-smi`, alone on the path."""
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


def test_the_driver_lists_its_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    install_nvidia_smi(monkeypatch, tmp_path, f"printf '{LISTING}'".replace("\n", "\\n"))
    assert list_gpus() == FOUND


def test_without_a_driver_there_are_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert list_gpus() == []


def test_a_broken_driver_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    install_nvidia_smi(monkeypatch, tmp_path, "echo 'No devices were found'; exit 6")
    with pytest.raises(RefusedError, match="No devices were found"):
        list_gpus()


def test_an_empty_list_is_no_gpu() -> None:
    assert parse_gpus("\n") == []


@pytest.mark.parametrize(
    ("wanted", "environment", "devices"),
    [
        ("all", {}, ["0", "1"]),
        ("all", {"CUDA_VISIBLE_DEVICES": "1"}, ["1"]),
        ("all", {"CUDA_VISIBLE_DEVICES": ""}, []),
        ("none", {}, []),
        ("1,0", {}, ["1", "0"]),
        (" 0 , 1 ", {}, ["0", "1"]),
        (FIRST, {}, [FIRST]),
        ("GPU-77777777", {"CUDA_VISIBLE_DEVICES": "0"}, ["GPU-77777777"]),
        ("MIG-0a1b2c3d", {}, ["MIG-0a1b2c3d"]),
    ],
)
def test_select(wanted: str, environment: dict[str, str], devices: list[str]) -> None:
    assert select(wanted, found=FOUND, environment=environment) == devices


@pytest.mark.parametrize("wanted", ["2", "0,0", ",", "GPU-99999999", "cuda:0", "-1"])
def test_select_refuses(wanted: str) -> None:
    with pytest.raises(RefusedError):
        select(wanted, found=FOUND, environment={})


def test_named_gpus_are_believed_where_nothing_lists_them() -> None:
    assert select("0,3", found=[], environment={}) == ["0", "3"]
    assert select("all", found=[], environment={}) == []


def test_groups_keep_the_order() -> None:
    assert group(["0", "1", "2", "3"], size=2) == [("0", "1"), ("2", "3")]
    assert group([], size=2) == []
    with pytest.raises(RefusedError, match="3 GPUs"):
        group(["0", "1", "2"], size=2)


def test_labels_are_short() -> None:
    assert label(("0", "1")) == "0+1"
    assert label((FIRST,)) == "GPU-5c2a9d1e"


def test_a_worker_sees_its_own_group_alone() -> None:
    settings = load(redis_url="redis://head:6379/0", metrics_port=9100, log_file=Path("/logs/w.log"))
    plans = plan_workers(
        WorkerOptions(engine="sim"),
        groups=[("0", "1"), ("2", "3")],
        cpu_workers=0,
        settings=settings,
        base={"CUDA_VISIBLE_DEVICES": "0,1,2,3", "BAKEHOUSE_MAX_CONCURRENCY": "7", "HOME": "/h"},
    )
    assert [plan.name for plan in plans] == ["0+1", "2+3"]
    assert [plan.environment["CUDA_VISIBLE_DEVICES"] for plan in plans] == ["0,1", "2,3"]
    assert [plan.environment["BAKEHOUSE_METRICS_PORT"] for plan in plans] == ["9100", "9101"]
    assert plans[1].environment["BAKEHOUSE_LOG_FILE"] == "/logs/w-2+3.log"
    assert "BAKEHOUSE_MAX_CONCURRENCY" not in plans[0].environment, "what is unset here is unset there"
    assert plans[0].environment["HOME"] == "/h"


def test_workers_on_the_cpu_see_no_gpu() -> None:
    plans = plan_workers(WorkerOptions(engine="vllm", model="m"), groups=[], cpu_workers=2, settings=load(), base={})
    assert [plan.name for plan in plans] == ["cpu0", "cpu1"]
    assert plans[0].environment["CUDA_VISIBLE_DEVICES"] == environment_of(())["CUDA_VISIBLE_DEVICES"] == ""
    assert plans[0].environment["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"
    assert plans[0].environment["OMP_NUM_THREADS"] == "1"
