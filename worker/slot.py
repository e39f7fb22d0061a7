"""One GPU's place under a supervisor: the incarnation that lives in it, and the one that died last."""

import os
import subprocess
import time
from collections import Counter
from dataclasses import dataclass

from worker.certificates import Cause, ExitStatus
from worker.launch import Plan, end_group, make_incarnation, spawn
from worker.restarts import History

LEAST_SHARE = 1 / 16


@dataclass(slots=True)
class Life:
    """One incarnation, from its start until its death is certified. Times are monotonic seconds."""

    incarnation: str
    gpu: str
    started_at: float
    ready: bool = False
    told: int = 0
    """Sentences said about its start."""
    results: int = 0
    idle_s: int = 0
    """For how long it has had nothing to do, says its heartbeat."""
    told_to_leave: bool = False
    status: ExitStatus | None = None
    out_of_memory: bool = False
    lived_s: float = 0.0


class Slot:
    """Starts, signals and buries the worker of one plan; decides nothing."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.history = History()
        self.life: Life | None = None
        self.restart_at: float | None = None
        """When to start the next life; None while one lives, is not yet certified, or none is to come."""
        self.gave_up: str | None = None
        """Why no other life is to come, where that is a failure."""
        self._target_share = 1.0
        self._restarts: Counter[str] = Counter()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The living worker's."""
        return None if self._process is None else self._process.pid

    @property
    def is_over(self) -> bool:
        """Nobody lives in it, no death waits for its certificate, and nobody will be started."""
        return self.life is None and self.restart_at is None

    def start(self) -> Life:
        """Begin a new life. From the main thread only."""
        incarnation = make_incarnation(self.plan.name)
        self._process = spawn(
            self.plan, incarnation=incarnation, target_share=self._target_share, restarts=self._restarts
        )
        self.life = Life(incarnation, self.plan.name, started_at=time.monotonic())
        self.restart_at = None
        return self.life

    def start_later(self, pause_s: float, *, after: Cause) -> None:
        """Let another life begin in `pause_s` seconds, `after` a death of that cause."""
        self.restart_at = time.monotonic() + pause_s
        self._restarts[after.value] += 1

    def spare_memory(self) -> None:
        """Let the next life begin with half the target; it raises it again by itself."""
        self._target_share = max(LEAST_SHARE, self._target_share / 2)

    def bury(self) -> Life | None:
        """If the worker has ended: end what is left of its group, reap it, and return its life with the status set."""
        process, life = self._process, self.life
        if process is None or life is None:
            return None
        # seen but not reaped: while the leader is a zombie its number cannot become another group's
        if os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return None
        end_group(process.pid)
        code = process.wait()
        life.status = ExitStatus(code=code) if code >= 0 else ExitStatus(signum=-code)
        life.lived_s = time.monotonic() - life.started_at
        self._process = None
        return life

    def send(self, signum: int) -> None:
        """Signal the worker itself, not its engine's children: those must finish what is in flight."""
        if self._process is not None and self.life is not None:
            self.life.told_to_leave = True
            # not Popen.send_signal: that reaps, and the number could be another's before its group is ended
            os.kill(self._process.pid, signum)

    def kill(self) -> None:
        """End the worker and its whole group at once; `bury` then finds it dead."""
        if self._process is not None:
            end_group(self._process.pid)
