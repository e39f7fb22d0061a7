"""A wall clock that is set while processes and servers live by it, as by an administrator or a bad time server."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, cast

from tests.servers import Server

FAKETIME = Path("/usr/lib") / f"{os.uname().machine}-linux-gnu" / "faketime" / "libfaketimeMT.so.1"
HOUR_S = 3600


class SteppedClock:
    """A wall clock that can be set while processes live by it; their monotonic clocks go on as they did."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"
        self.step(0)

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to live by this clock."""
        return {
            "LD_PRELOAD": str(FAKETIME),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def step(self, offset_s: int) -> None:
        """Be so many seconds ahead of the true time, at once."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{offset_s:+d}s\n")
        new.replace(self._file)

    def offset_s(self) -> float:
        """By how much a new process sees it ahead, and that its monotonic clock is nobody's: the proof of a step."""
        code = "import time; print(time.time(), time.monotonic())"
        env = {**os.environ, **self.environment}
        ended = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
        wall_s, monotonic_s = map(float, ended.stdout.split())
        assert abs(monotonic_s - time.monotonic()) < 60, "the monotonic clock was stepped too"
        return wall_s - time.time()


class ClockedServer(Server):
    """A server that lives by a stepped clock."""

    def __init__(self, kind: str, directory: Path, *options: str, clock: SteppedClock) -> None:
        super().__init__(kind, directory, *options)
        self._clock = clock

    def start(self) -> "ClockedServer":
        """Start it under the clock and wait until it answers."""
        kept = {name: os.environ.get(name) for name in self._clock.environment}
        os.environ.update(self._clock.environment)
        try:
            super().start()
        finally:
            for name, value in kept.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value
        return self

    def time_s(self) -> float:
        """Its wall clock."""
        seconds, microseconds = cast(Any, self.client().time())
        return float(seconds + microseconds / 1e6)
