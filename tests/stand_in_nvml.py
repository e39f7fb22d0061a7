"""A GPU driver's management library for machines without a GPU: two GPUs, as `stand_in_nvml.c` has them."""

import shutil
import subprocess
from pathlib import Path

COMPILER = shutil.which("cc") or shutil.which("gcc")
GIB = 1 << 30


def build_nvml(folder: Path) -> str:
    """The LD_LIBRARY_PATH with which a process sees those GPUs."""
    assert COMPILER is not None
    library = folder / "libnvidia-ml.so.1"
    source = Path(__file__).with_suffix(".c")
    subprocess.run([COMPILER, "-shared", "-fPIC", "-Wall", "-Werror", "-o", str(library), str(source)], check=True)
    return str(folder)
