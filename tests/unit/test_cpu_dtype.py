"""The type of numbers on a CPU: wide where bfloat16 would be computed in software, and only for plain weights."""

import json
from argparse import Namespace
from pathlib import Path

import pytest

from worker.engines.cpu_dtype import computes_bfloat16, read_cpuinfo, widen

OLD = "processor\t: 0\nflags\t\t: fpu sse avx avx2 fma\n"
NEW = "processor\t: 0\nflags\t\t: fpu avx2 avx512f avx512_bf16\n"


@pytest.mark.parametrize(
    ("cpuinfo", "computes"),
    [
        (OLD, False),
        (NEW, True),
        ("flags : amx_bf16 amx_tile\n", True),
        ("Features : fp asimd bf16\n", True),
        ("Features : fp asimd\n", False),
        ("", True),
    ],
)
def test_what_a_cpu_says_it_has(cpuinfo: str, computes: bool) -> None:
    assert computes_bfloat16(cpuinfo) is computes


def test_this_machine_says_what_it_has() -> None:
    assert "flags" in read_cpuinfo() or "Features" in read_cpuinfo()


@pytest.mark.parametrize(
    ("cpuinfo", "given", "config", "dtype"),
    [
        (OLD, "auto", {"torch_dtype": "bfloat16"}, "float32"),
        (OLD, "auto", {"dtype": "bfloat16"}, "float32"),
        (NEW, "auto", {"dtype": "bfloat16"}, "auto"),
        (OLD, "bfloat16", {"dtype": "bfloat16"}, "bfloat16"),
        (OLD, "auto", {"dtype": "float16"}, "auto"),
        (OLD, "auto", {"dtype": "bfloat16", "quantization_config": {}}, "auto"),
        (OLD, "auto", [], "auto"),
    ],
)
def test_what_becomes_of_the_type(tmp_path: Path, cpuinfo: str, given: str, config: object, dtype: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    arguments = Namespace(dtype=given, model=str(tmp_path))
    assert widen(arguments, cpuinfo=cpuinfo) is (arguments.dtype != given)
    assert arguments.dtype == dtype


def test_a_name_on_a_hub_is_left_alone() -> None:
    arguments = Namespace(dtype="auto", model="someone/some-model")
    assert not widen(arguments, cpuinfo=OLD)
