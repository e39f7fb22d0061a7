"""The control group's count of out-of-memory kills: it tells a worker that ate all memory from one that was killed."""

import time
from collections.abc import Callable
from pathlib import Path

RECENT_S = 10.0
"""A kill of an engine child shows at once in the count, and only then in the worker's own end."""


class OomWatch:
    """Has the count risen lately? Looked at every second by the supervisor; without a control group: never."""

    def __init__(self, file: Path | None, *, now: Callable[[], float] = time.monotonic) -> None:
        self._file = file
        self._now = now
        self._count = self._read()
        self._rose_at: float | None = None

    def look(self) -> bool:
        """Whether the count has risen within the last `RECENT_S` seconds, by this look or an earlier one."""
        count = self._read()
        if count > self._count:
            self._rose_at = self._now()
        self._count = count
        return self._rose_at is not None and self._now() - self._rose_at <= RECENT_S

    def _read(self) -> int:
        if self._file is None:
            return 0
        try:
            lines = self._file.read_text().splitlines()
        except OSError:
            return 0
        return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))


def find_oom_file(*, cgroup: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> Path | None:
    """The file with this process's `oom_kill` count: cgroup v2, else v1, else None."""
    try:
        entries = [line.split(":", 2) for line in cgroup.read_text().splitlines()]
    except OSError:
        return None
    for _, controllers, path in entries:
        below = path.lstrip("/")
        if controllers == "":
            candidates = [root / below / "memory.events", root / "memory.events"]
        elif "memory" in controllers.split(","):
            candidates = [root / "memory" / below / "memory.oom_control", root / "memory" / "memory.oom_control"]
        else:
            continue
        found = next((file for file in candidates if file.is_file()), None)
        if found is not None:
            return found
    return None
