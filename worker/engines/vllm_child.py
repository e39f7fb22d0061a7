"""vLLM's children die with the worker, ignore Ctrl-C, and leave word of why they did not start. Imports no vllm.

Each calls `register` twice: as soon as it lives, since it reads the worker's main module again (`worker.app`), and as
our entry point in `vllm.general_plugins`. Without it a worker's kill -9 leaves the engine core alive with all its
memory, and a Ctrl-C that reaches the engine core cuts answers short that then look good.
"""

import contextlib
import json
import logging
import os
import signal
import threading
from pathlib import Path

from common.lifeline import die_with_parent
from worker.roster import started_ticks

WORKER_PID_VARIABLE = "BAKEHOUSE_WORKER_PID"
"""Set by the worker to its own pid before it makes the engine: elsewhere vLLM is none of our business."""
FAILURE_FILE_VARIABLE = "BAKEHOUSE_START_FAILURE_FILE"
"""Where a child that does not start, or dies, says why: what vLLM tells the worker is only that it did."""


def register() -> None:
    """In a child of a worker: die when the parent does, leave Ctrl-C to the worker. Elsewhere: nothing.

    The kernel ties the signal to the thread that made the child, so the engine must be made in a thread that
    lives as long as the worker. SIGTERM stays as it is: vLLM's own shutdown uses it.
    """
    worker_pid = os.environ.get(WORKER_PID_VARIABLE)
    if worker_pid is None or worker_pid == str(os.getpid()):
        return
    die_with_parent(os.getppid())
    if started_ticks(int(worker_pid)) is None:
        os._exit(1)  # orphaned before the line above
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    if file := os.environ.get(FAILURE_FILE_VARIABLE):
        logging.getLogger("vllm").addHandler(_LastWords(Path(file)))


class _LastWords(logging.Handler):
    """Notes the first error that vLLM logs in this process: its kinds and its text."""

    def __init__(self, file: Path) -> None:
        super().__init__(level=logging.ERROR)
        self._file = file

    def emit(self, record: logging.LogRecord) -> None:
        """Write it down, unless a child of this child was first: its error is the cause."""
        error = record.exc_info[1] if record.exc_info else None
        if error is None:
            return
        words = {"kinds": [kind.__name__ for kind in type(error).__mro__], "text": str(error)}
        with contextlib.suppress(OSError), self._file.open("x", encoding="utf-8") as stream:
            json.dump(words, stream)
