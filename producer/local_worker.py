"""The one worker that `producer run` brings along when no Redis is given: `worker start` as a child process.

It has its own process group, so that a Ctrl-C reaches only the producer, and it ends with the producer, also after
kill -9. What it says goes to `logs/worker.log` in the job directory, and with a line a request to
`logs/events-<gpu>.log`, rotated; its presence in Redis tells when it is ready.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Self

import psutil
import redis

from common import keys
from common.lifeline import die_with_parent
from common.settings import Settings
from producer.embedded import describe_end, end_process
from producer.input_file import private
from producer.job_spec import EmbeddedWorker

STOP_GRACE_S = 15.0
"""Beyond the drain timeout: the supervisor ends its group at drain timeout + 10 s."""
_ABORT = (signal.SIGTERM, signal.SIGINT, signal.SIGINT, signal.SIGKILL)
"""What its supervisor understands: drain; abort; kill the engines too. And where it understands nothing."""
_ABORT_STEP_S = 1.5
_STARTING = "worker: starting"
"""What its supervisor says first: what comes before is about earlier lives."""
_REASON_LINES = 6
_REASON_BYTES = 64 * 1024
_QUIET = ("timestamp", "level", "logger", "event")
_OWN_KNOBS = ("redis_url", "redis_password_file", "jobs", "log_file", "metrics_port", "exit_when_idle_s")
"""Knobs that the producer keeps for itself: the worker gets its own server, log and port, and stays as long as it."""
_SIMULATED = "BAKEHOUSE_SIM_"
"""What the simulated engine itself is told: where it is to count calls and tokens."""


class LocalWorker:
    """One `worker start`. Start it from a thread that lives as long as it should: the main thread."""

    def __init__(
        self, arguments: Sequence[str], *, environment: Mapping[str, str], log_path: Path, drain_timeout_s: float
    ) -> None:
        self._arguments = arguments
        self._environment = dict(environment)
        self._log_path = log_path
        self._stop_s = drain_timeout_s + STOP_GRACE_S
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start_bytes = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.stop()
        else:
            self.abort()

    def start(self) -> None:
        """Start its supervisor; returns at once."""
        with open(self._log_path, "ab", opener=private) as output:
            self._log_start_bytes = output.tell()
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "worker.cli", "start", *self._arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self._environment,
                process_group=0,
                preexec_fn=partial(die_with_parent, os.getpid()),
            )

    def ended(self) -> str | None:
        """How it ended and what it said last, None while it runs."""
        code = None if self._process is None else self._process.poll()
        if code is None:
            return None
        words = self._last_words()
        return "\n  ".join([f"the local worker {describe_end(code)}; log: {self._log_path}", *words])

    def memory_bytes(self) -> int:
        """Resident memory of its processes together."""
        try:
            root = psutil.Process(self._process.pid) if self._process else None
            family = [root, *root.children(recursive=True)] if root else []
            return sum(process.memory_info().rss for process in family)
        except psutil.Error:
            return 0

    def drain(self) -> None:
        """Tell it to finish what runs and take no more; returns at once."""
        if self._process is not None:
            self._process.terminate()

    def stop(self) -> None:
        """Drain it and block until it has ended."""
        if self._process is not None:
            end_process(self._process, wait_s=self._stop_s)

    def abort(self) -> None:
        """End it within seconds: what is in flight is handed back, and its supervisor leaves no orphan."""
        if self._process is None:
            return
        for signum in _ABORT:
            self._process.send_signal(signum)
            try:
                self._process.wait(_ABORT_STEP_S)
                return
            except subprocess.TimeoutExpired:
                continue

    def _last_words(self) -> list[str]:
        with self._log_path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(self._log_start_bytes, size - _REASON_BYTES))
            lines = file.read().decode(errors="replace").strip().splitlines()
        said = [text for line in lines if (text := readable(line))]
        starts = [number for number, text in enumerate(said) if text.startswith(_STARTING)]
        return said[starts[-1] + 1 if starts else 0 :][-_REASON_LINES:]


def worker_arguments(worker: EmbeddedWorker) -> list[str]:
    """The arguments of `worker start` that make it `worker`."""
    named = {
        "--engine": worker.engine,
        "--model": worker.model,
        "--served-model-name": worker.served_model_name,
        "--gpus": worker.gpus,
        "--tensor-parallel-size": worker.tensor_parallel_size if worker.tensor_parallel_size > 1 else None,
        "--workers": worker.workers if worker.workers > 1 else None,
        "--sim-profile": worker.sim_profile,
        "--sim-seconds": worker.sim_seconds,
        "--sim-places": worker.sim_places,
    }
    flags = [f"{flag}={value}" for flag, value in named.items() if value is not None]
    patterns = [f"--sim-pattern={pattern}" for pattern in worker.sim_patterns]
    return [*flags, *patterns, *(["--", *worker.vllm_flags] if worker.vllm_flags else [])]


def worker_environment(settings: Settings, *, url: str, log_file: Path, base: Mapping[str, str]) -> dict[str, str]:
    """`base` with every knob as it was settled here, the server at `url`, and a metrics port one above our own."""
    knobs = settings.model_dump(mode="json", exclude_none=True, exclude=set(_OWN_KNOBS))
    knobs |= {"redis_url": url, "log_file": log_file}
    if settings.metrics_port is not None:
        knobs["metrics_port"] = settings.metrics_port and settings.metrics_port + 1
    kept = {
        name: value
        for name, value in base.items()
        if not name.upper().startswith("BAKEHOUSE_") or name.startswith(_SIMULATED)
    }
    return kept | {f"BAKEHOUSE_{name.upper()}": str(value) for name, value in knobs.items()}


def count_ready(client: redis.Redis) -> int:
    """How many workers say in Redis that they are ready."""
    states = [client.hget(key, "state") for key in client.scan_iter(match=keys.WORKER_PREFIX + "*", count=1000)]
    return sum(state == b"ready" for state in states)


def readable(line: str) -> str | None:
    """A log line for people: of a JSON line its event and its facts, any other as it is; None where all is well."""
    try:
        fields = json.loads(line)
    except ValueError:
        return line
    if not isinstance(fields, dict) or "event" not in fields:
        return line
    if fields.get("level") in ("debug", "info"):
        return None
    facts = [f"{name}={value}" for name, value in fields.items() if name not in _QUIET]
    return " ".join([str(fields["event"]), *facts])
