"""Processes that stand still and go on later: a laptop's sleep, a paused container, a page fault on a dead disk.

`frozen` stops living processes where they are. As a program it is a `producer` that stops itself just before the N-th
call of one function (TARGET: module:Class.name), until somebody sends it SIGCONT:

    python -m tests.faults.freezing TARGET N PRODUCER-ARGUMENTS...
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial

import psutil

from tests.crashing import arm
from tests.waiting import wait_until


def is_stopped(pid: int) -> bool:
    """Whether the process stands still."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_STOPPED)
    except psutil.NoSuchProcess:
        return False


def freeze(pids: Iterable[int]) -> None:
    """Stop processes, and see that each of them stands still."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    for pid in pids:
        wait_until(partial(is_stopped, pid), timeout_s=5, description=f"{pid} stands still")


def thaw(pids: Iterable[int]) -> None:
    """Let processes go on, in this order."""
    for pid in pids:
        os.kill(pid, signal.SIGCONT)


@contextmanager
def frozen(*pids: int) -> Iterator[None]:
    """Processes stand still for the time of the block; at its end they go on in the order given."""
    freeze(pids)
    try:
        yield
    finally:
        thaw(pids)


def await_frozen(process: "subprocess.Popen[bytes]", *, words: Callable[[], str], timeout_s: float = 30) -> None:
    """Wait until `process` has stopped itself at its point."""
    wait_until(
        lambda: is_stopped(process.pid) or process.poll() is not None,
        timeout_s=timeout_s,
        description="the process stands still at its point",
    )
    assert process.poll() is None, f"it never came to its point: {words()}"


def freezing_command(target: str, number: int, *arguments: object) -> list[str]:
    """`producer ARGUMENTS` that stands still before the `number`-th call of `target`."""
    return [sys.executable, "-m", "tests.faults.freezing", target, str(number), *map(str, arguments)]


def main() -> None:
    """Be the producer."""
    target, number, *arguments = sys.argv[1:]
    arm(target, int(number), signum=signal.SIGSTOP)
    sys.argv = ["producer", *arguments]
    from producer import cli

    cli.main()


if __name__ == "__main__":
    main()
