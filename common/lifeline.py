"""Children that die with their parent, also after kill -9: the kernel's parent-death signal (prctl(2)).

The signal is tied to the *thread* that made the child: spawn from one that lives as long as the child should.
"""

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent_pid: int, *, signum: int = signal.SIGKILL) -> None:
    """Ask the kernel to send `signum` to this process when its parent ends; ends at once if it has already gone."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signum, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent_pid:
        os.kill(os.getpid(), signum)
