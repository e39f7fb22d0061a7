"""CPU seconds and peak memory of each process of the fleet, sampled while a benchmark runs."""

import threading
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import psutil

SAMPLE_S = 0.25
MIB = 1024 * 1024


@dataclass
class Usage:
    """What one process used between the first and the last sample."""

    cpu_s: float = 0.0
    cpu_at_start_s: float | None = None
    peak_bytes: int = 0


class Sampler:
    """Follows processes by role from `with` to its end; a role may gain processes while it runs."""

    def __init__(self, roots: dict[str, int]) -> None:
        self.roots = roots
        self.usage: dict[str, Usage] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> Self:
        self._sample()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def rows(self) -> list[list[str]]:
        """Role, CPU seconds and peak MiB of each process, as table rows."""
        return [
            [role, f"{usage.cpu_s:.1f}", f"{usage.peak_bytes / MIB:.0f}"] for role, usage in sorted(self.usage.items())
        ]

    def _follow(self) -> None:
        while not self._ended.wait(SAMPLE_S):
            self._sample()

    def _sample(self) -> None:
        for role, root in self.roots.items():
            try:
                top = psutil.Process(root)
                family = [(role, top)] + [(f"{role}/{name_of(child)}", child) for child in top.children(recursive=True)]
            except psutil.NoSuchProcess:
                continue
            for name, process in family:
                self._add(name, process)

    def _add(self, name: str, process: psutil.Process) -> None:
        try:
            times = process.cpu_times()
            memory = process.memory_info().rss
        except psutil.NoSuchProcess:
            return
        usage = self.usage.setdefault(name, Usage())
        total = times.user + times.system
        if usage.cpu_at_start_s is None:
            usage.cpu_at_start_s = total
        usage.cpu_s = total - usage.cpu_at_start_s
        usage.peak_bytes = max(usage.peak_bytes, memory)


def name_of(process: psutil.Process) -> str:
    """What a process is, by its command: `worker.app`, `EngineCore`, ..."""
    try:
        words = process.cmdline() or [process.name()]
        title = process.name()
    except psutil.NoSuchProcess:
        return "ended"
    modules = [word for before, word in pairwise(words) if before == "-m"]
    return modules[0] if modules else title
