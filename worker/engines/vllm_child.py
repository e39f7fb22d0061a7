"""vLLM's children die with the worker: each calls `register`, our entry point in `vllm.general_plugins`.

Without it a worker's kill -9 leaves the engine core alive with all its memory, and a Ctrl-C that reaches the
engine core cuts answers short that then look good. Imports no vllm.
"""

import multiprocessing
import os
import signal
import threading

from common.lifeline import die_with_parent

WORKER_PID_VARIABLE = "BAKEHOUSE_WORKER_PID"
"""Set by the worker to its own pid before it makes the engine: elsewhere vLLM is none of our business."""


def register() -> None:
    """In a child of a worker: die when the parent does, leave Ctrl-C to the worker. Elsewhere: nothing.

    The kernel ties the signal to the thread that made the child, so the engine must be made in a thread that
    lives as long as the worker. SIGTERM stays as it is: vLLM's own shutdown uses it.
    """
    worker_pid = os.environ.get(WORKER_PID_VARIABLE)
    if worker_pid is None or worker_pid == str(os.getpid()):
        return
    parent = multiprocessing.parent_process()
    die_with_parent(os.getppid() if parent is None or parent.pid is None else parent.pid)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
