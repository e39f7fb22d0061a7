"""Real processes for tests: the two commands as a user starts them, their output, their end."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from common import keys
from tests.servers import Server
from tests.waiting import wait_until

ROOT = Path(__file__).parent.parent
SMALL_MODEL = ROOT / "models" / "smollm2"
SHOWN_CHARACTERS = 4_000
VLLM_FLAGS = ("--", "--max-model-len", "2048", "--enforce-eager", "--kv-cache-memory-bytes", "512M")
READY_S = 240.0
"""A real engine on a busy machine; a quiet one takes 20."""


def environment(**more: str) -> dict[str, str]:
    """This process's environment without any knob of ours, and `more`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("BAKEHOUSE_")}
    return {**kept, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", **more}


def producer_command(*arguments: object) -> list[str]:
    """`producer ARGUMENTS` as a command line."""
    return [sys.executable, "-P", "-m", "producer.cli", *map(str, arguments)]


def worker_command(*arguments: object) -> list[str]:
    """`worker ARGUMENTS` as a command line."""
    return [sys.executable, "-P", "-m", "worker.cli", *map(str, arguments)]


def run_producer(*arguments: object, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
    """`producer ARGUMENTS` to its end, with what it printed."""
    return subprocess.run(
        producer_command(*arguments),
        env=environment(),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


@contextmanager
def started(command: Sequence[str], *, log: Path, **more: str) -> Iterator[subprocess.Popen[bytes]]:
    """`command` running in a session of its own, its output in `log`; ended with all it started at the end.

    The log's end is printed, for whoever reads of a failed test or benchmark.
    """
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, env=environment(**more), stdout=output, stderr=output, start_new_session=True
        )
    try:
        yield process
    finally:
        children = descendants(process.pid)
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(45)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for child in children:
            if child.is_running():
                child.kill()
        if sys.exc_info()[0] is not None or "PYTEST_CURRENT_TEST" in os.environ:
            print(f"the end of {log}:\n{log.read_text(errors='replace')[-SHOWN_CHARACTERS:]}")


@contextmanager
def started_worker(server: Server, *arguments: object, log: Path, **more: str) -> Iterator[subprocess.Popen[bytes]]:
    """`worker start ARGUMENTS` on `server`, with `more` in its environment, ready to take work."""
    before = set(live_workers(server))
    with started(worker_command("start", "--redis-url", server.url, *arguments), log=log, **more) as process:
        wait_until(
            lambda: process.poll() is not None or set(live_workers(server)) - before,
            timeout_s=READY_S,
            description=f"a worker is ready; its log: {log}",
        )
        assert process.poll() is None, log.read_text()[-3000:]
        yield process


def live_workers(server: Server) -> list[str]:
    """Incarnations that are ready on `server`."""
    client = server.client()
    names = [key.decode() for key in client.scan_iter(keys.WORKER_PREFIX + "*")]
    return [name for name in names if client.hget(name, "state") == b"ready"]


class Memory(NamedTuple):
    """What a process holds, and the most that it ever held."""

    bytes: int
    peak_bytes: int


def memory_of(pid: int) -> Memory:
    """The resident memory of a process as the kernel counts it; nothing once it has ended."""
    try:
        status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    except (FileNotFoundError, ProcessLookupError):
        return Memory(0, 0)
    return Memory(*(int(status.get(name, "0 kB").split()[0]) * 1024 for name in ("VmRSS", "VmHWM")))


def descendants(pid: int) -> list[psutil.Process]:
    """Every process that descends from `pid`, now."""
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def alive(process: psutil.Process) -> bool:
    """Whether it still runs (a zombie does not)."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def await_gone(processes: Iterable[psutil.Process], *, timeout_s: float = 3) -> None:
    """Wait until none of `processes` runs any more."""
    left = list(processes)

    def look() -> bool:
        left[:] = filter(alive, left)
        return not left

    try:
        wait_until(look, timeout_s=timeout_s, description="no process is left")
    except AssertionError as error:
        raise AssertionError(f"left: {left}") from error


def read_results(path: Path) -> list[dict[str, Any]]:
    """The result lines of an ordered file; a torn last line is an error."""
    raw = path.read_bytes()
    assert raw == b"" or raw.endswith(b"\n"), "torn last line"
    return [json.loads(line) for line in raw.split(b"\n") if line]
