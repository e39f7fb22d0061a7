"""Signals as messages: the supervisor waits for them, for its children and for time in one place.

A handler only notes the signal; the write to a pipe that ends the wait is the interpreter's own (`set_wakeup_fd`).
"""

import os
import select
import signal
from collections import deque
from types import FrameType

_LEAVE = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class SignalInbox:
    """The signals that this process received, in order. Made in the main thread, once a process."""

    def __init__(self) -> None:
        self._received: deque[int] = deque()
        self._reader, writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for signum in _LEAVE:
            if signum != signal.SIGHUP or signal.getsignal(signum) != signal.SIG_IGN:  # nohup means it
                signal.signal(signum, self._note)
        signal.signal(signal.SIGCHLD, self._wake)

    def wait(self, timeout_s: float) -> None:
        """Block until a signal, the end of a child included, or for `timeout_s` seconds."""
        if self._received:
            return
        if select.select([self._reader], [], [], timeout_s)[0]:
            os.read(self._reader, 4096)

    def take(self) -> list[int]:
        """What was received since the last call: SIGTERM, SIGINT, SIGHUP."""
        taken = []
        while self._received:
            taken.append(self._received.popleft())
        return taken

    def _note(self, signum: int, _frame: FrameType | None) -> None:
        self._received.append(signum)

    def _wake(self, _signum: int, _frame: FrameType | None) -> None:
        """SIGCHLD needs a handler, or the interpreter would not write to the pipe."""
