"""A terminal of so many columns with a real process on it: what it shows, read as a person would."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyte
from pyte.screens import Char

from tests.processes import environment

QUIET_S = 0.1
"""What is written at once comes in pieces, but not so far apart."""
SETTLED_S = 1.0
"""A page that lives is written anew every 0.25 s and may never be quiet for so long."""


class Terminal:
    """The screen, and the process that writes on it."""

    def __init__(self, process: subprocess.Popen[bytes], master: int, *, columns: int, rows: int) -> None:
        self.process = process
        self._master = master
        self._screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self._screen)
        self.raw = b""
        """All that was written."""

    def read_until(self, text: str, *, timeout_s: float) -> str:
        """The screen, once it shows `text` and all that came with it. Raises AssertionError when it does not."""
        until_s = time.monotonic() + timeout_s
        while text not in self.text:
            assert time.monotonic() < until_s, f"{text!r} is not on the screen:\n{self.text}"
            assert self._read(0.1) or self.process.poll() is None, f"ended before {text!r} was shown:\n{self.text}"
        until_s = time.monotonic() + SETTLED_S
        while self._read(QUIET_S) and time.monotonic() < until_s:
            pass
        return self.text

    def read_to_end(self) -> str:
        """The screen when the process has ended."""
        while self.process.poll() is None or self._read(0.0):
            self._read(0.1)
        return self.text

    @property
    def text(self) -> str:
        """What stands on the screen now."""
        return "\n".join(line.rstrip() for line in self._screen.display).strip()

    @property
    def cells(self) -> list[list[Char]]:
        """The same as rows of cells, with their colours."""
        screen = self._screen
        return [[screen.buffer[row][column] for column in range(screen.columns)] for row in range(screen.lines)]

    def _read(self, timeout_s: float) -> bool:
        """Take in what was written meanwhile."""
        readable, _, _ = select.select([self._master], [], [], timeout_s)
        if not readable:
            return False
        try:
            chunk = os.read(self._master, 65536)
        except OSError:  # nobody has the other end any more
            return False
        self.raw += chunk
        self._stream.feed(chunk)
        return bool(chunk)


@contextmanager
def terminal(command: Sequence[str], *, columns: int = 80, rows: int = 40) -> Iterator[Terminal]:
    """`command` on a terminal; killed at the end if it still runs."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    process = subprocess.Popen(
        command, env=environment(TERM="xterm"), stdin=slave, stdout=slave, stderr=slave, start_new_session=True
    )
    os.close(slave)
    try:
        yield Terminal(process, master, columns=columns, rows=rows)
    finally:
        process.kill()
        process.wait()
        os.close(master)
