"""From the flags of `worker start` to what is started: a plan for each worker process, and the process itself.

The worker is `python -P -m worker.app`, so that a folder `worker/` where the user stands does not shadow ours.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from common.lifeline import die_with_parent
from common.settings import Settings
from worker.engines.vllm_env import engine_environment
from worker.gpu import environment_of, label
from worker.options import WorkerOptions

COMMAND = (sys.executable, "-P", "-m", "worker.app")


@dataclass(frozen=True, slots=True)
class Plan:
    """One worker to be kept running: its command, its options and the environment it is given."""

    options: WorkerOptions
    environment: Mapping[str, str] = field(repr=False)
    command: tuple[str, ...] = COMMAND

    @property
    def name(self) -> str:
        """The GPU or group it stands for."""
        return self.options.gpu


def make_incarnation(gpu: str) -> str:
    """A new life's name: `<host>-<gpu>-<8 hex>`."""
    host = re.sub(r"[^A-Za-z0-9.]+", "-", os.uname().nodename)[:48]
    return f"{host}-{gpu}-{os.urandom(4).hex()}"


def plan_workers(
    options: WorkerOptions,
    *,
    groups: list[tuple[str, ...]],
    cpu_workers: int,
    settings: Settings,
    base: Mapping[str, str],
) -> list[Plan]:
    """A plan a GPU group, or without any group `cpu_workers` plans that see no GPU."""
    labels = [label(group) for group in groups] or [f"cpu{number}" for number in range(cpu_workers)]
    plans = []
    for position, name in enumerate(labels):
        environment = _with_settings(base, settings=settings, name=name, position=position)
        environment.update(environment_of(groups[position] if groups else ()))
        if options.engine == "vllm":
            cores = len(os.sched_getaffinity(0))
            environment.update(
                engine_environment(environment, accelerator=bool(groups), cores=cores, workers=len(labels))
            )
        plans.append(Plan(options.model_copy(update={"gpu": name}), environment))
    return plans


def spawn(plan: Plan, *, incarnation: str, target_share: float, restarts: Mapping[str, int]) -> subprocess.Popen[bytes]:
    """Start one life of `plan` in a session of its own, tied to this process: it dies when this one does.

    Call it from the main thread: the kernel's parent-death signal watches the thread that made the child.
    """
    supervisor = os.getpid()
    life = {"incarnation": incarnation, "target_share": target_share, "restarts": dict(restarts)}
    options = plan.options.model_copy(update={**life, "spawned_at": time.monotonic()})
    return subprocess.Popen(
        plan.command,
        env={**plan.environment, **options.to_environment()},
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr.fileno(),
        start_new_session=True,
        preexec_fn=lambda: die_with_parent(supervisor),
    )


def end_group(leader: int) -> None:
    """SIGKILL to every process of a worker's group: the engine's children too, also while it still starts."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        return


def _with_settings(base: Mapping[str, str], *, settings: Settings, name: str, position: int) -> dict[str, str]:
    """`base` with every knob as it was settled here by flags, environment and file; a port and a log file a worker."""
    knobs = {f"BAKEHOUSE_{knob.upper()}": value for knob, value in settings.model_dump(mode="json").items()}
    if settings.metrics_port:
        knobs["BAKEHOUSE_METRICS_PORT"] = settings.metrics_port + position
    if settings.log_file is not None:
        knobs["BAKEHOUSE_LOG_FILE"] = worker_log_file(settings.log_file, name=name)
    others = {variable: value for variable, value in base.items() if variable.upper() not in knobs}
    return others | {variable: str(value) for variable, value in knobs.items() if value is not None}


def worker_log_file(file: Path, *, name: str) -> Path:
    """Where worker `name` logs beside its supervisor's `file`: two processes cannot rotate one file."""
    return file.absolute().with_name(f"{file.stem}-{name}{file.suffix}")
