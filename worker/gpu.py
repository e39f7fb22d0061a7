"""Which GPUs a node's workers run on, found without CUDA: each worker sees its own group and no other.

`CUDA_VISIBLE_DEVICES` must be set before anything in a process initialises CUDA, so it is set where the process is
started. `nvidia-smi` comes with the driver; where it is missing (a container without it), named GPUs are believed.
"""

import csv
import io
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from common.errors import RefusedError

VISIBLE = "CUDA_VISIBLE_DEVICES"
_QUERY = ("nvidia-smi", "--query-gpu=index,uuid,name,memory.total", "--format=csv,noheader,nounits")
_TIMEOUT_S = 30.0
"""A broken GPU can make the driver's tools hang."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU as the driver lists it."""

    index: int
    uuid: str
    name: str
    memory_mib: int


def list_gpus() -> list[Gpu]:
    """The GPUs of this host in the driver's order; none where there is no driver. Raises `RefusedError` if it fails."""
    try:
        done = subprocess.run(_QUERY, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except FileNotFoundError:
        return []
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RefusedError(f"nvidia-smi does not answer: {error}", do="name the GPUs: --gpus 0,1") from error
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip() or f"exit code {done.returncode}"
        raise RefusedError(f"nvidia-smi fails: {said}", do="mend the driver, or --gpus none for workers on the CPU")
    return parse_gpus(done.stdout)


def parse_gpus(listing: str) -> list[Gpu]:
    """The GPUs in nvidia-smi's CSV `listing`; memory 0 where it is not stated."""
    rows = csv.reader(io.StringIO(listing), skipinitialspace=True)
    return [
        Gpu(int(index), uuid, name, int(memory) if memory.isdigit() else 0)
        for index, uuid, name, memory in (row for row in rows if row)
    ]


def select(wanted: str, *, found: Sequence[Gpu], environment: Mapping[str, str]) -> list[str]:
    """The devices that `--gpus` names, each an index or a UUID as given; [] for `none`.

    `all`: those a scheduler already left visible to us, else all `found`. Raises `RefusedError`: one that is not there,
    one named twice.
    """
    if wanted == "none":
        return []
    if wanted == "all":
        visible = visible_devices(environment)
        return [str(gpu.index) for gpu in found] if visible is None else visible
    devices = _split(wanted)
    if not devices:
        raise RefusedError("no GPU named", where=f"--gpus {wanted}", do="--gpus 0,1, all or none")
    twice = sorted({device for device in devices if devices.count(device) > 1})
    if twice:
        raise RefusedError(f"GPU named twice: {', '.join(twice)}", where=f"--gpus {wanted}")
    for device in devices:
        _check(device, found=found)
    return devices


def visible_devices(environment: Mapping[str, str]) -> list[str] | None:
    """The devices that a process with `environment` may see; None: all there are."""
    visible = environment.get(VISIBLE)
    return None if visible is None else _split(visible)


def group(devices: Sequence[str], *, size: int) -> list[tuple[str, ...]]:
    """`devices` in order, in groups of `size` (tensor parallel). Raises `RefusedError` when some would be left over."""
    if len(devices) % size:
        raise RefusedError(
            f"{len(devices)} GPUs cannot be shared out in groups of {size}",
            where=f"--tensor-parallel-size {size}",
            do="name a multiple with --gpus",
        )
    return [tuple(devices[start : start + size]) for start in range(0, len(devices), size)]


def label(devices: Sequence[str]) -> str:
    """The group's short name in incarnations and metrics: `0`, `0+1`, `GPU-5c2a9d1e`."""
    return "+".join(device if device.isdigit() else device[:12] for device in devices)


def environment_of(devices: Sequence[str]) -> dict[str, str]:
    """What a worker of this group must find in its environment; for no devices, that it sees none.

    The order by bus makes an index mean the same GPU to CUDA as to nvidia-smi.
    """
    return {VISIBLE: ",".join(devices), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def _split(listed: str) -> list[str]:
    return [part.strip() for part in listed.split(",") if part.strip()]


def _check(device: str, *, found: Sequence[Gpu]) -> None:
    if device.isdigit():
        known = not found or int(device) in {gpu.index for gpu in found}
    else:
        known = device.startswith(("GPU-", "MIG-"))
        if known and found and device.startswith("GPU-"):
            known = any(gpu.uuid.startswith(device) for gpu in found)
    if not known:
        there = ", ".join(f"{gpu.index} ({gpu.uuid})" for gpu in found) or "unknown, nvidia-smi is missing"
        raise RefusedError(f"no such GPU: {device}", where=f"found: {there}", do="name an index or a UUID")
