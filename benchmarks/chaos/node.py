"""One host of a chaos run as the fleet sees it: a supervisor with its workers, its own cache, its own log."""

import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import psutil

from tests.processes import alive, descendants, environment


class Node:
    """A supervisor that can be started again by the same command, and everything that ever ran below it."""

    def __init__(self, name: str, command: Sequence[str], *, folder: Path, variables: dict[str, str]) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self.ever: list[psutil.Process] = []
        self._command = command
        self._environment = environment(XDG_CACHE_HOME=str(folder / f"cache-{name}"), **variables)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The process started last."""
        assert self._process is not None
        return self._process

    def start(self, command: Sequence[str] | None = None) -> None:
        """Run the command, or from now on another one; returns at once."""
        self._command = command or self._command
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                self._command, env=self._environment, stdout=output, stderr=output, start_new_session=True
            )
        self.ever.append(psutil.Process(self._process.pid))

    def family(self) -> list[psutil.Process]:
        """The process and all below it, now."""
        found = [psutil.Process(self.process.pid), *descendants(self.process.pid)]
        self.ever += [process for process in found if process not in self.ever]
        return found

    @property
    def ended(self) -> bool:
        """Whether the process started last has ended."""
        return self.process.poll() is not None

    def owns(self, pid: int) -> bool:
        """Whether process `pid` runs below it."""
        return any(process.pid == pid for process in self.family())

    def send(self, signum: signal.Signals) -> None:
        """`signum` to the whole family, its head first: nobody is there to answer for a stopped child."""
        for process in self.family():
            process.send_signal(signum)

    def close(self) -> None:
        """End all of it, whatever state it is in."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self.family()
        for process in self.ever:
            if alive(process):
                process.kill()
        self._process.wait()

    def last_words(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-1500:] if self.log.exists() else ""
