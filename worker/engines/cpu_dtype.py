"""Which type of numbers an engine on a CPU computes in, beside a line's way: bfloat16 only where the CPU can.

Without instructions for it each product is computed by way of 32-bit numbers. Measured with SmolLM2 on two cores of an
AVX2 machine: a job that took 43 s in float32 was not done after 180 s in bfloat16.
"""

import json
import re
from argparse import Namespace
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
_FLAGS = re.compile(r"^(?:flags|Features)\s*:(.*)$", re.M)
_BFLOAT16 = {"avx512_bf16", "amx_bf16", "bf16"}
"""Of x86-64 with AVX-512 or AMX, and of Arm."""
WIDE = "float32"


def computes_bfloat16(cpuinfo: str) -> bool:
    """Whether a CPU that describes itself so has instructions for it; True where it does not say what it has."""
    found = _FLAGS.search(cpuinfo)
    return found is None or bool(_BFLOAT16 & set(found[1].split()))


def widen(arguments: Namespace, *, cpuinfo: str) -> bool:
    """Compute in float32 what `cpuinfo`'s CPU has no bfloat16 for; True: it is so now.

    Only where the user left the type open, and the model is a folder of plain bfloat16 weights.
    """
    if arguments.dtype != "auto" or computes_bfloat16(cpuinfo) or not _is_plain_bfloat16(Path(arguments.model)):
        return False
    arguments.dtype = WIDE
    return True


def read_cpuinfo() -> str:
    """How this machine's CPU describes itself; empty where nothing does."""
    try:
        return CPUINFO.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _is_plain_bfloat16(folder: Path) -> bool:
    try:
        config = json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError):
        return False
    is_plain = isinstance(config, dict) and "quantization_config" not in config
    return is_plain and "bfloat16" in (config.get("dtype"), config.get("torch_dtype"))
