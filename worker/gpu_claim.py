"""`--gpus free`: GPUs that no other worker of this host has taken so, by a lock on a file for each.

For containers that are all started alike (`--scale worker=4`) and share the folder of locks. The kernel drops a lock
when its process ends, however it ends.
"""

import fcntl
import os
from collections.abc import Sequence
from pathlib import Path

from common.errors import RefusedError
from worker.gpu import Gpu


def claim_free(found: Sequence[Gpu], *, size: int, folder: Path) -> list[str]:
    """`size` of the GPUs `found`, taken for the life of this process. Raises `RefusedError` where fewer are free."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    taken: list[str] = []
    for gpu in found:
        descriptor = os.open(folder / gpu.uuid, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # never closed: it is held until the process ends
        except BlockingIOError:
            os.close(descriptor)
            continue
        taken.append(str(gpu.index))
        if len(taken) == size:
            return taken
    raise RefusedError(
        f"{len(taken)} GPUs are free, {size} are needed",
        where=f"{len(found)} found, locks in {folder}",
        do="start fewer workers on this host",
    )
