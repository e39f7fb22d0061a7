"""Processor seconds of each role in a run: beside the engine's own they are what a fleet takes from it."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

import psutil

from benchmarks.sampling import cpu_s_of

CORE, FRONT, SUPERVISOR, COLLECTOR, SERVER = "engine core", "front", "supervisor", "collector", "server"


def cpu_s(heads: Mapping[int, str]) -> dict[str, float]:
    """By role, so far: of the processes whose roles are given by pid, and of all that descend from them."""
    used: defaultdict[str, float] = defaultdict(float)
    for pid, role in heads.items():
        head = psutil.Process(pid)
        used[role] += cpu_s_of(head)
        for child in head.children(recursive=True):
            used[_role_of(child)] += cpu_s_of(child)
    return dict(used)


def spent(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """Between two looks."""
    return {role: used_s - before.get(role, 0.0) for role, used_s in after.items()}


def beside(cpu: Mapping[str, float], roles: Iterable[str] = (SUPERVISOR, COLLECTOR, SERVER)) -> float:
    """Of those that a bare engine does without."""
    return sum(cpu.get(role, 0.0) for role in roles)


def _role_of(process: psutil.Process) -> str:
    return CORE if process.name().startswith("VLLM") else FRONT
