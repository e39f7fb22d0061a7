"""`--gpus free`: each worker of a host takes other GPUs, and what a process had is free when it ends."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from common.errors import RefusedError
from tests.unit.test_gpu import LISTING, install_nvidia_smi
from worker.gpu import Gpu
from worker.gpu_claim import claim_free
from worker.node import find_groups
from worker.options import WorkerOptions

FOUND = [Gpu(number, f"GPU-{number}", "H200", 0) for number in range(4)]


def test_each_claim_takes_others_until_none_is_left(tmp_path: Path) -> None:
    assert claim_free(FOUND, size=1, folder=tmp_path) == ["0"]
    assert claim_free(FOUND, size=2, folder=tmp_path) == ["1", "2"]
    with pytest.raises(RefusedError, match="1 GPUs are free, 2 are needed"):
        claim_free(FOUND, size=2, folder=tmp_path)


def test_a_process_that_ends_gives_them_back(tmp_path: Path) -> None:
    program = (
        "import pathlib, sys; from tests.unit.test_gpu_claim import FOUND; from worker.gpu_claim import claim_free\n"
        "print(claim_free(FOUND, size=4, folder=pathlib.Path(sys.argv[1])), flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert "'3'" in other.stdout.readline()
        with pytest.raises(RefusedError, match="0 GPUs are free"):
            claim_free(FOUND, size=1, folder=tmp_path)
        other.kill()
    assert claim_free(FOUND, size=1, folder=tmp_path) == ["0"]


def test_a_node_takes_what_one_engine_needs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    install_nvidia_smi(monkeypatch, tmp_path, f"/usr/bin/printf '{LISTING}'".replace("\n", "\\n"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert find_groups(WorkerOptions(engine="vllm", model="m"), gpus="free") == [("0",)]
    assert find_groups(WorkerOptions(engine="vllm", model="m"), gpus="free") == [("1",)]
    assert sorted(os.listdir(tmp_path / "cache" / "bakehouse" / "gpus"))[0].startswith("GPU-5c2a9d1e")
