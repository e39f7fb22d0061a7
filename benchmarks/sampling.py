"""CPU seconds and peak memory of each process of the fleet, sampled while a benchmark runs."""

import os
import subprocess
import threading
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import psutil

SAMPLE_S = 0.25
MIB = 1024 * 1024


@dataclass
class Usage:
    """What one role used between the first and the last sample."""

    cpu_s: float = 0.0
    peak_bytes: int = 0

    @property
    def peak_mib(self) -> float:
        """In MiB."""
        return self.peak_bytes / MIB

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {"cpu_s": round(self.cpu_s, 2), "peak_mib": round(self.peak_mib, 1)}


class Sampler:
    """Follows processes by role from `with` to its end; a role may gain processes while it runs."""

    def __init__(self, roots: dict[str, int]) -> None:
        self.roots = roots
        self._of_process: dict[tuple[str, int], Usage] = {}
        self._cpu_before_s: dict[int, float] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> Self:
        self._sample(is_first=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._sample()

    def usage(self) -> dict[str, Usage]:
        """By role, the processes of one name together."""
        together: dict[str, Usage] = {}
        for (role, _), usage in sorted(self._of_process.items()):
            sums = together.setdefault(role, Usage())
            sums.cpu_s += usage.cpu_s
            sums.peak_bytes += usage.peak_bytes
        return together

    def _follow(self) -> None:
        while not self._ended.wait(SAMPLE_S):
            self._sample()

    def _sample(self, *, is_first: bool = False) -> None:
        for role, root in self.roots.items():
            try:
                top = psutil.Process(root)
                family = [(role, top)] + [(f"{role}/{name_of(child)}", child) for child in top.children(recursive=True)]
            except psutil.NoSuchProcess:
                continue
            for name, process in family:
                self._add(name, process, is_first=is_first)

    def _add(self, name: str, process: psutil.Process, *, is_first: bool) -> None:
        try:
            cpu_s = cpu_s_of(process)
            memory = process.memory_info().rss
        except psutil.NoSuchProcess:
            return
        if is_first:
            self._cpu_before_s[process.pid] = cpu_s
        usage = self._of_process.setdefault((name, process.pid), Usage())
        usage.cpu_s = cpu_s - self._cpu_before_s.get(process.pid, 0.0)
        usage.peak_bytes = max(usage.peak_bytes, memory)


def await_end(process: "subprocess.Popen[bytes]") -> None:
    """Block until it has ended, and leave it to be waited for: till then its processor time can be read."""
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)


def cpu_s_of(process: psutil.Process) -> float:
    """Processor seconds that it has used so far. Raises `psutil.NoSuchProcess`."""
    times = process.cpu_times()
    return float(times.user + times.system)


def name_of(process: psutil.Process) -> str:
    """What a process is, by its command: `worker.app`, `EngineCore`, ..."""
    try:
        words = process.cmdline() or [process.name()]
        title = process.name()
    except psutil.NoSuchProcess:
        return "ended"
    modules = [word for before, word in pairwise(words) if before == "-m"]
    return modules[0] if modules else title
