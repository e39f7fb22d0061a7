"""How a worker ends: by order (drain, then abort) or by its own death; the only place that decides its exit code.

Drain: take no more, let requests finish up to the drain timeout, stop the rest, publish, release, hand hints back.
Death: publish what is finished, say why, and go at once: nothing in flight may be recorded as failed.
"""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

from common.errors import EngineDeadError, EngineMemoryError, ExitCode
from common.log import Event, get_logger
from worker.engine_loop import EngineLoop
from worker.metrics import DRAINS
from worker.options import EXIT_DIED, EXIT_DRAINED, EXIT_ENGINE_KILLED, EXIT_OUT_OF_MEMORY, EXIT_STOPPED

SETTLE_S = 4.0
"""After the last request was stopped: how long its micro-batch may still wait for Redis."""
LAST_RITES_S = 3.0
"""How long a dying worker may still take to publish what is finished."""
CHILD_S = 5.0
"""How long after its last word an engine's process may take to end."""
CHILD_LOOK_S = 0.05
KILLED = frozenset({-signal.SIGKILL, -signal.SIGTERM, 0})
"""Exit codes of an engine that somebody ended: told by SIGTERM, vLLM's ends by itself with 0, and only then."""

log = get_logger(__name__)


class Ending:
    """One worker's end. Plain flags are set by signal handlers; everything else happens in the loop or in threads."""

    def __init__(self, loop: EngineLoop, *, drain_timeout_s: float) -> None:
        self.is_leaving = False
        self.is_aborted = False
        self.is_stopping = False
        """What is in flight is being stopped: nothing new may begin."""
        self.left_something = False
        """A micro-batch could not be handed back: Redis is away."""
        self.cut_at_step: int | None = None
        """The engine's last step when it last cut an answer short unasked: somebody has told it to end."""
        self._loop = loop
        self._drain_timeout_s = drain_timeout_s
        self._over_at = float("inf")
        self._out_of_time = threading.Event()
        self._dying = threading.Lock()
        self._on_leave: list[Callable[[], object]] = []
        self._on_stop: list[Callable[[], object]] = []
        self._last_rites: list[Callable[[], object]] = []
        self._engine_children: list[multiprocessing.process.BaseProcess] = []

    def watch_children(self) -> None:
        """Remember the engine's processes, now that it is up: how they end says who ended them."""
        self._engine_children = list(multiprocessing.active_children())

    def note_cut(self, step: int) -> None:
        """The engine has cut an answer short, unasked, at `step`."""
        self.cut_at_step = step

    def when_leaving(self, function: Callable[[], object]) -> None:
        """Call `function` in the loop when the drain begins."""
        self._on_leave.append(function)

    def when_stopping(self, function: Callable[[], object]) -> None:
        """Call `function` in the loop when what is still in flight is to be stopped."""
        self._on_stop.append(function)

    def last_rite(self, function: Callable[[], object]) -> None:
        """Call `function` in a thread of its own before a death."""
        self._last_rites.append(function)

    def on_signal(self, signum: int, _frame: FrameType | None) -> None:
        """First SIGTERM or SIGINT: drain. SIGINT while draining: abort. Once more: go. Takes no lock."""
        if not self.is_leaving:
            self.leave()
        elif signum == signal.SIGINT and self.is_aborted:
            os._exit(ExitCode.INTERRUPTED)
        elif signum == signal.SIGINT:
            self.is_aborted = True
            self._over_at = time.monotonic() + SETTLE_S
            self._loop.call(self._stop)

    def leave(self) -> None:
        """Begin the drain, once."""
        if not self.is_leaving:
            self.is_leaving = True
            self._over_at = time.monotonic() + self._drain_timeout_s + SETTLE_S
            self._loop.call(self._leave)

    def wait(self, duration_s: float) -> bool:
        """Block so long; False, at once, when there is no time left to wait for anything."""
        return not self._out_of_time.wait(duration_s)

    def overdue_s(self) -> float:
        """How long ago the drain should have been over; negative before."""
        return time.monotonic() - self._over_at

    def exit_code(self) -> int:
        """How a worker that was told to leave ends."""
        if self.is_aborted:
            return ExitCode.INTERRUPTED
        return EXIT_STOPPED if self.left_something else EXIT_DRAINED

    def die(self, code: int, *, event: Event, reason: str) -> NoReturn:
        """End this process now; any thread may call it, the first one decides."""
        with self._dying:
            log.error(event, reason=reason, exit_code=int(code))
            rites = threading.Thread(target=self._perform_last_rites, name="last-rites", daemon=True)
            rites.start()
            rites.join(LAST_RITES_S)
            os._exit(code)

    def die_of_engine(self, error: EngineDeadError) -> None:
        """End this process now, since its engine is gone; the exit code says whether somebody ended the engine.

        Returns only where this worker leaves anyway and its engine was told so too, by a signal to their group: then
        the drain goes on, and what is held is handed back.
        """
        codes = self._codes_of_children()
        died = EXIT_OUT_OF_MEMORY if isinstance(error, EngineMemoryError) else EXIT_DIED
        code = EXIT_ENGINE_KILLED if KILLED.intersection(codes) else died
        if self.is_leaving and code == EXIT_ENGINE_KILLED:
            self._loop.call(self._stop)
            return
        self.die(code, event=Event.ENGINE_DIED, reason=f"{error} (its processes ended with {codes})")

    def _codes_of_children(self) -> list[int | None]:
        """How the engine's processes ended, asked until all say so: one that another thread reaps waits a moment."""
        deadline = time.monotonic() + CHILD_S
        while True:
            codes = [child.exitcode for child in self._engine_children]
            if None not in codes or time.monotonic() > deadline:
                return codes
            time.sleep(CHILD_LOOK_S)

    def _leave(self) -> None:
        DRAINS.inc()
        log.info(Event.WORKER_DRAINING, timeout_s=self._drain_timeout_s)
        for function in self._on_leave:
            function()
        self._loop.call_later(self._drain_timeout_s, self._stop)

    def _stop(self) -> None:
        if self.is_stopping:
            return
        self.is_stopping = True
        for function in self._on_stop:
            function()
        self._loop.call_later(SETTLE_S, self._out_of_time.set)

    def _perform_last_rites(self) -> None:
        for function in self._last_rites:
            function()
