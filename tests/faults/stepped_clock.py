"""A wall clock that is set while processes and servers live by it, as by an administrator or a bad time server.

libfaketime 0.9.10 breaks every sleep to an absolute monotonic time, as Python makes them; so this is a shim of our own,
built where there is a C compiler.
"""

import os
import shutil
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, cast

from tests.servers import Server

COMPILER = shutil.which("cc") or shutil.which("gcc")
HOUR_S = 3600


class NoCompilerError(Exception):
    """The clock cannot be built here."""


class SteppedClock:
    """One clock for any number of processes; their monotonic clocks go on as they did."""

    def __init__(self, folder: Path) -> None:
        """Build what is needed in `folder`."""
        self._file = folder / "clock"
        self._file.write_bytes(struct.pack("=q", 0))
        self._library = folder / "stepped_clock.so"
        if COMPILER is None:
            raise NoCompilerError("there is no C compiler for the clock")
        source = Path(__file__).with_suffix(".c")
        command = [COMPILER, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", str(self._library), str(source)]
        subprocess.run(command, check=True)

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to live by this clock."""
        return {"LD_PRELOAD": str(self._library), "STEPPED_CLOCK": str(self._file)}

    def step(self, offset_s: int) -> None:
        """Be so many seconds ahead of the true time, at once and for all."""
        with self._file.open("r+b") as file:
            file.write(struct.pack("=q", offset_s))

    def offset_s(self) -> float:
        """By how much a process sees it ahead. Its monotonic clock must be everybody's."""
        code = "import time; print(time.time(), time.monotonic())"
        env = {**os.environ, **self.environment}
        ended = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
        wall_s, monotonic_s = map(float, ended.stdout.split())
        assert abs(monotonic_s - time.monotonic()) < 60, "the monotonic clock was stepped too"
        return wall_s - time.time()


class ClockedServer(Server):
    """A server that lives by a stepped clock."""

    def __init__(self, kind: str, directory: Path, *, clock: SteppedClock) -> None:
        super().__init__(kind, directory)
        wrapper = directory.with_suffix(".sh")
        words = " ".join(f"{name}={value}" for name, value in clock.environment.items())
        wrapper.write_text(f'#!/bin/sh\nexec env {words} {self.binary} "$@"\n')
        wrapper.chmod(0o700)
        self.binary = str(wrapper)

    def offset_s(self) -> float:
        """By how much its wall clock is ahead."""
        seconds, microseconds = cast(Any, self.client().time())
        return float(seconds + microseconds / 1e6 - time.time())
