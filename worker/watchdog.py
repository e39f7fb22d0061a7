"""Looks every second whether this worker still gets on: engine, loop, consumer, Redis, its own drain; ends it if not.

Beside a line's way. Nothing here reads a wall clock, and nothing here can hang with what it watches: it only reads
counters.
"""

import faulthandler
import sys
import threading
import time
from dataclasses import dataclass

import redis
from celery.worker import state as celery_state

from common.broker import PRIORITY_STEPS, hint_list
from common.errors import EngineDeadError
from common.log import Event, get_logger
from worker.admission import Admission
from worker.ending import Ending
from worker.engine_loop import EngineLoop
from worker.engines.base import Engine
from worker.keeper import Keeper
from worker.options import EXIT_DIED, EXIT_ENGINE_KILLED, EXIT_STOPPED
from worker.outage import Outage
from worker.stillness import Stillness

LOOK_S = 1.0
BLIND_S = 2.0
"""Between two looks no more time than this counts: who stood still too (a laptop's sleep) cannot tell."""
QUEUE_LOOK_S = 5.0
STILL_S = 10.0
"""A loop that has not moved for so long is not healthy; it is dead only after `hang_s`."""
LATE_SHARE = 0.5
"""An engine that has made no step for this share of `hang_s` is not healthy, so that it is seen before it is ended."""
STARVED_S = 60.0
"""A worker with free places that gets nothing from a queue that is never empty does not consume any more."""
OVERDUE_S = 4.0
"""How long after its end a drain may still take to hand back hints."""

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """When to lose patience; 0: never."""

    hang_s: float
    give_up_after_s: float


class Watchdog:
    """One thread of a worker that has its engine up."""

    def __init__(
        self,
        *,
        engine: Engine,
        loop: EngineLoop,
        admission: Admission,
        keeper: Keeper,
        ending: Ending,
        outage: Outage,
        client: redis.Redis,
        queues: tuple[str, ...],
        limits: Limits,
        threads: int,
    ) -> None:
        """`threads`: so many messages the consumer may have in hand."""
        self._engine = engine
        self._loop = loop
        self._admission = admission
        self._keeper = keeper
        self._ending = ending
        self._outage = outage
        self._client = client
        self._lists = [hint_list(queue, priority) for queue in queues for priority in PRIORITY_STEPS]
        self._limits = limits
        self._threads = threads
        self._beats = 0
        self._still_s = self._stuck_s = 0.0
        self._health = Stillness()
        self._steps, self._loop_beats, self._received, self._idle = (Stillness() for _ in range(4))
        self._idle_s = 0.0
        self.busy_s = 0.0
        """Seconds in which anything was in flight."""
        self._hints_wait = False
        self._queue_look_at = 0.0
        self._stopped = threading.Event()

    def start(self) -> None:
        """Watch for the rest of this process's life."""
        self._loop.every(LOOK_S, self.beat)
        threading.Thread(target=self._run, name="watchdog", daemon=True).start()

    def stop(self) -> None:
        """Watch no longer: the engine is about to be stopped."""
        self._stopped.set()

    def is_alive(self) -> bool:
        """Whether the loop moves, and the engine too where anything is in flight; for health checks."""
        is_late = self._admission.in_flight > 0 and self._stuck_s > LATE_SHARE * self._limits.hang_s
        return self._still_s < STILL_S and not is_late

    def idle_s(self) -> float:
        """For how long this worker has had nothing to do, and could have worked."""
        return 0.0 if self._keeper.holds() else self._idle_s

    def beat(self) -> None:
        """The engine's loop moves on."""
        self._beats += 1

    def look(self, now: float) -> None:
        """Look at everything once; `now` is monotonic."""
        self._still_s = self._health.seconds(self._beats, now=now)
        self._look_at_engine(now)
        self._look_at_drain()
        self._look_for_idleness(now)
        if now >= self._queue_look_at:
            self._queue_look_at = now + QUEUE_LOOK_S
            self._admission.reconcile(celery_state.requests)
            self._loop.submit(self._check_engine())
            self._look_at_redis()
            self._look_at_queue(now)

    def _run(self) -> None:
        looked_at = watched_s = time.monotonic()
        while not self._stopped.wait(LOOK_S):
            now = time.monotonic()
            passed_s = min(now - looked_at, BLIND_S)
            watched_s += passed_s
            self.busy_s += passed_s * (self._admission.in_flight > 0)
            looked_at = now
            self.look(watched_s)

    async def _check_engine(self) -> None:
        try:
            await self._engine.check_health()
        except EngineDeadError as error:
            if self._stopped.is_set():
                return
            threading.Thread(target=self._ending.die_of_engine, args=(error,), daemon=True).start()

    def _look_at_engine(self, now: float) -> None:
        """Hung: no step with requests in the engine, or a loop that stands still with requests in flight.

        Requests that time out leave a hung engine empty for a while: that is no step, the time goes on from there.
        """
        in_flight = self._admission.in_flight > 0
        is_asked = in_flight and self._engine.unfinished() > 0
        self._stuck_s = max(
            self._steps.seconds(self._engine.steps(), now=now, counts=is_asked, keeps=True),
            self._loop_beats.seconds(self._beats, now=now, counts=in_flight),
        )
        if self._stuck_s > self._limits.hang_s:
            # a core that was told to end cuts its answers short, and may hang in its own end
            told = self._ending.cut_at_step == self._engine.steps()
            reason = f"no step for {self._stuck_s:.0f} s{', since it was told to end' if told else ''}"
            faulthandler.dump_traceback(sys.__stderr__ or 2)  # where every thread stands; shows no values
            self._ending.die(EXIT_ENGINE_KILLED if told else EXIT_DIED, event=Event.ENGINE_HUNG, reason=reason)

    def _look_at_drain(self) -> None:
        if self._ending.overdue_s() > OVERDUE_S:
            reason = "the drain does not come to its end"
            self._ending.die(self._ending.exit_code() or EXIT_STOPPED, event=Event.WORKER_STOPPED, reason=reason)

    def _look_for_idleness(self, now: float) -> None:
        """What counts is work that was claimed: a hint that is dropped is none. Redis away: nobody knows."""
        busy = self._admission.load or self._keeper.holds() or self._hints_wait or self._outage.lasted_s()
        self._idle_s = self._idle.seconds(self._keeper.taken, now=now, counts=not busy)

    def _look_at_redis(self) -> None:
        away_s = self._outage.lasted_s()
        if 0 < self._limits.give_up_after_s < away_s:
            self._ending.die(EXIT_STOPPED, event=Event.WORKER_STOPPED, reason=f"Redis away for {away_s:.0f} s")

    def _look_at_queue(self, now: float) -> None:
        """A server on a full disk tells how long its queues are, and gives nothing out: that is an outage."""
        has_place = self._admission.has_room and len(celery_state.requests) < self._threads
        may_take = has_place and not self._ending.is_leaving and self._outage.lasted_s() == 0
        self._hints_wait = may_take and self._queue_waits()
        starved_s = self._received.seconds(self._admission.received_total, now=now, counts=self._hints_wait)
        if starved_s > STARVED_S:
            reason = f"received nothing for {starved_s:.0f} s from a queue that is not empty"
            self._ending.die(EXIT_STOPPED, event=Event.WORKER_STOPPED, reason=reason)

    def _queue_waits(self) -> bool:
        try:
            with self._client.pipeline(transaction=False) as pipe:
                for name in self._lists:
                    pipe.llen(name)
                return any(pipe.execute())
        except redis.RedisError as error:
            self._outage.missed(error)
            return False
