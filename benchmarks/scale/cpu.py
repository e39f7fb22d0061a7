"""Processor time that a job takes, of the fleet and of all: what shows that no worker waits for a core."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import psutil

from benchmarks.report import cpus
from benchmarks.sampling import cpu_s_of


@dataclass(frozen=True)
class Cpu:
    """Over one job."""

    seconds: dict[str, float]
    """By role: workers, server, collector."""
    fleet: float
    """All of that, as a share of the machine's processors."""
    machine: float
    """The share that anybody used."""

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        seconds = {f"{role}_s": round(used_s, 2) for role, used_s in self.seconds.items()}
        return {**seconds, "fleet": round(self.fleet, 3), "machine": round(self.machine, 3)}


class CpuMeter:
    """Runs from its making to `read`. Who ends meanwhile is counted up to the last `look`, who joins is not."""

    def __init__(self, roles: Mapping[str, Iterable[int]]) -> None:
        """`roles`: the processes at the head of each role."""
        self._roles = {role: list(pids) for role, pids in roles.items()}
        self._began_s = time.monotonic()
        self._machine = psutil.cpu_times()
        self._before = {pid: used_s for _, pid, used_s in self._times()}
        self._used: dict[tuple[str, int], float] = {}

    def add(self, role: str, pid: int) -> None:
        """Follow a process that has just been started, too."""
        self._roles.setdefault(role, []).append(pid)

    def look(self) -> None:
        """Note what each has used so far."""
        for role, pid, used_s in self._times():
            self._used[role, pid] = used_s - self._before.get(pid, 0.0)

    def read(self) -> Cpu:
        """What was used."""
        self.look()
        now, elapsed_s = psutil.cpu_times(), time.monotonic() - self._began_s
        seconds = {role: sum(s for (whose, _), s in self._used.items() if whose == role) for role in self._roles}
        all_s = sum(now) - sum(self._machine)
        idle_s = now.idle - self._machine.idle + now.iowait - self._machine.iowait
        return Cpu(seconds, sum(seconds.values()) / (cpus() * elapsed_s), 1.0 - idle_s / all_s if all_s else 0.0)

    def _times(self) -> Iterable[tuple[str, int, float]]:
        for role, pids in self._roles.items():
            for pid in pids:
                try:
                    head = psutil.Process(pid)
                    for process in (head, *head.children()):
                        yield role, process.pid, cpu_s_of(process)
                except psutil.NoSuchProcess:
                    continue
