"""A control group with a memory limit of its own, so that the kernel's out-of-memory kill can really be had.

Needs root and a memory controller, of version 1 or 2. Processes join by `joined`; their children stay in it.
"""

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
STEP_BYTES = 4 << 20


class MemoryGroup:
    """One group; without a limit until it is given one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._is_v2 = (path / "memory.max").exists()

    def joined(self, command: Sequence[str]) -> list[str]:
        """`command`, run inside the group."""
        return ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(self._path), *command]

    def tighten(self) -> None:
        """Draw the limit as near to what its processes hold as the kernel lets it be drawn."""
        if self._is_v2:
            self._limit(str(self._figure("memory.stat", "anon") + STEP_BYTES))
            return
        limit_bytes = self._figure("memory.stat", "total_rss")
        while True:
            limit_bytes += STEP_BYTES
            try:
                return self._limit(str(limit_bytes))
            except OSError as error:
                if error.errno != errno.EBUSY:  # what is not the processes' own cannot be taken back
                    raise

    def lift(self) -> None:
        """No limit any more."""
        self._limit("max" if self._is_v2 else "-1")

    def _limit(self, value: str) -> None:
        (self._path / ("memory.max" if self._is_v2 else "memory.limit_in_bytes")).write_text(value)

    def kills(self) -> int:
        """Processes that the kernel has killed in it for want of memory."""
        return self._figure("memory.events" if self._is_v2 else "memory.oom_control", "oom_kill")

    def _figure(self, file: str, name: str) -> int:
        lines = (self._path / file).read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.split()[0] == name)


@contextmanager
def memory_group() -> Iterator[MemoryGroup | None]:
    """A fresh group, or None where none can be made; its processes must have ended by the end of `with`."""
    parent = ROOT if (ROOT / "cgroup.controllers").exists() else ROOT / "memory"
    path = parent / f"bakehouse-{os.getpid()}"
    try:
        path.mkdir()
        usable = (path / "memory.stat").exists()
    except OSError:
        yield None
        return
    try:
        yield MemoryGroup(path) if usable else None
    finally:
        with suppress(OSError):
            path.rmdir()
