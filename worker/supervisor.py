"""Parent of a node's workers: starts one a GPU, restarts and certifies those that die, and leaves no orphan.

It runs no engine and carries no line; what it writes is `bakehouse:died`. A worker lives in a session of its own, so a
Ctrl-C at the terminal reaches only the supervisor, which passes it on. Order at a death: end the process group, write
the certificate (Redis away: until it is back), forget the roster's entry, decide, start the next one. A crash between
any two leaves an entry in the roster, and the next supervisor certifies it.
"""

import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import redis

from common import keys
from common.errors import ExitCode
from common.log import Event, get_logger
from worker.certificates import Cause, cause_of, certify, holds_any, lacked_memory
from worker.launch import Plan
from worker.oom import OomWatch
from worker.options import EXIT_ABORTED, EXIT_CANNOT_START, EXIT_DRAINED, EXIT_STOPPED
from worker.restarts import Death, decide
from worker.roster import Roster
from worker.signal_inbox import SignalInbox
from worker.slot import Life, Slot
from worker.start_phases import describe

TURN_S = 0.5
LOOK_S = 2.0
KILL_AFTER_DRAIN_S = 10.0
ABORT_S = 10.0
"""After the second Ctrl-C: results that are finished may still be published for so long."""
LAST_CERTIFICATES_S = 5.0
"""Redis away at the end: the roster keeps what could not be certified within this time."""
REMIND_S = 60.0

log = get_logger(__name__)


class Supervisor:
    """Keeps a worker alive for each plan until told to leave, or until none is worth another start."""

    def __init__(
        self,
        plans: Sequence[Plan],
        *,
        client: redis.Redis,
        roster: Roster,
        inbox: SignalInbox,
        oom: OomWatch,
        drain_timeout_s: float,
        give_up_after_s: float,
        exit_when_idle_s: float = 0.0,
        say: Callable[[str], None],
    ) -> None:
        self._slots = [Slot(plan) for plan in plans]
        self._client = client
        self._roster = roster
        self._inbox = inbox
        self._oom = oom
        self._drain_timeout_s = drain_timeout_s
        self._give_up_after_s = give_up_after_s
        self._exit_when_idle_s = exit_when_idle_s
        self._say = say
        self._exit_code: ExitCode | None = None
        """Set once it is leaving."""
        self._kill_at = float("inf")
        self._redis_lost_at: float | None = None
        self._next_look_at = 0.0
        self._remind_at = time.monotonic() + REMIND_S

    def run(self) -> ExitCode:
        """Block until every slot is over: 0 drained, 3 gave up, 130 after a second Ctrl-C. From the main thread."""
        try:
            for slot in self._slots:
                self._start(slot)
            self._turn()
            while not self._is_over():
                self._inbox.wait(TURN_S)
                self._turn()
        finally:
            for slot in self._slots:
                slot.kill()
        return self._end()

    def _turn(self) -> None:
        for signum in self._inbox.take():
            self._obey(signum)
        out_of_memory = self._oom.look()
        buried = [life for slot in self._slots if (life := slot.bury()) is not None]
        for life in buried:
            life.out_of_memory = out_of_memory
            with suppress(OSError):  # no entry, or a full disk: who certifies it later does not know
                self._roster.conclude(life.incarnation, _cause_of(life))
        now = time.monotonic()
        if buried or now >= self._next_look_at:
            self._next_look_at = now + LOOK_S
            self._talk_to_redis()
        if now >= self._kill_at:
            self._kill_at = float("inf")
            for slot in self._slots:
                slot.kill()
        for slot in self._slots:
            if slot.restart_at is not None and now >= slot.restart_at:
                self._start(slot)
        self._remind(now)

    def _start(self, slot: Slot) -> None:
        again = slot.restart_at is not None
        life = slot.start()
        assert slot.pid is not None
        try:
            self._roster.add(life.incarnation, slot.pid)
        except OSError as error:
            self._miss_roster(error)
        event = Event.WORKER_RESTARTED if again else Event.WORKER_STARTED
        log.info(event, worker=life.incarnation, gpu=slot.plan.name, pid=slot.pid)

    def _obey(self, signum: int) -> None:
        """First signal: drain. Ctrl-C once more: abort. And once more: kill."""
        if self._exit_code is None:
            self._leave(ExitCode.OK)
            self._say(
                f"draining: what runs may finish for {self._drain_timeout_s:g} s, the rest goes back to the queue"
                " (Ctrl-C again: at once)"
            )
        elif signum == signal.SIGINT:
            abort_s = 0.0 if self._exit_code == ExitCode.INTERRUPTED else ABORT_S
            self._exit_code = ExitCode.INTERRUPTED
            self._kill_at = time.monotonic() + abort_s
            for slot in self._slots:
                slot.send(signal.SIGINT)

    def _leave(self, exit_code: ExitCode) -> None:
        self._exit_code = exit_code
        self._kill_at = time.monotonic() + self._drain_timeout_s + KILL_AFTER_DRAIN_S
        for slot in self._slots:
            slot.restart_at = None
            slot.send(signal.SIGTERM)

    def _talk_to_redis(self) -> None:
        """Certify the dead, look at the living. Redis away: all of it again at the next look."""
        try:
            for slot in self._slots:
                if slot.life is not None:
                    self._look(slot.life)
                    if slot.life.status is not None:
                        self._certify(slot, slot.life)
        except redis.RedisError as error:
            self._miss_redis(error)
        else:
            if self._redis_lost_at is not None:
                log.info(Event.REDIS_FOUND, away_s=round(time.monotonic() - self._redis_lost_at, 1))
            self._redis_lost_at = None
            self._leave_if_idle()

    def _look(self, life: Life) -> None:
        """What the worker's heartbeat says; it outlives the worker by up to 20 s."""
        name = keys.worker(life.incarnation)
        state, results, idle_s, start = self._client.hmget(name, "state", "results", "idle_s", "start")
        life.results = max(life.results, int(results or 0))
        life.idle_s = int(idle_s or 0)
        if not life.ready and state in (b"ready", b"draining"):
            life.ready = True
            elapsed_s = round(time.monotonic() - life.started_at, 1)
            log.info(Event.WORKER_READY, worker=life.incarnation, elapsed_s=elapsed_s)
        for sentence in describe(start)[life.told :] if life.ready and start else []:
            life.told += 1
            self._say(f"worker {life.gpu}: {sentence}")

    def _leave_if_idle(self) -> None:
        """A node that has had nothing to do for so long: every worker of it, none of them starting or dead."""
        lives = [slot.life for slot in self._slots if not slot.is_over]
        if not lives or not self._exit_when_idle_s or self._exit_code is not None:
            return
        idle_s = min(0 if life is None or life.status is not None else life.idle_s for life in lives)
        if idle_s >= self._exit_when_idle_s:
            log.info(Event.NODE_IDLED, idle_s=idle_s)
            self._say(f"nothing to do for {idle_s} s, --exit-when-idle is {self._exit_when_idle_s:g} s: draining")
            self._leave(ExitCode.OK)

    def _certify(self, slot: Slot, life: Life) -> None:
        cause = _cause_of(life)
        held = cause == Cause.SELF or holds_any(self._client, life.incarnation)
        certify(self._client, life.incarnation, cause)
        with suppress(OSError):  # certified again by the next supervisor, which does no harm
            self._roster.remove(life.incarnation)
        slot.life = None
        if self._exit_code is not None:
            log.info(Event.WORKER_DRAINED, worker=life.incarnation, ended=str(life.status))
        else:
            self._decide(slot, life, cause=cause, held=held)

    def _decide(self, slot: Slot, life: Life, *, cause: Cause, held: bool) -> None:
        assert life.status is not None
        death = Death(
            ready=life.ready,
            held=held,
            results=life.results,
            lived_s=life.lived_s,
            drained=life.status.code in (EXIT_DRAINED, EXIT_ABORTED),
            hopeless=life.status.code == EXIT_CANNOT_START,
            blameless=life.status.code == EXIT_STOPPED,
        )
        slot.history, decision = decide(slot.history, death)
        facts = {"worker": life.incarnation, "ended": str(life.status), "lived_s": round(life.lived_s, 1)}
        if decision.action == "retire":
            log.info(Event.WORKER_DRAINED, **facts)
        elif decision.action == "give_up":
            slot.gave_up = f"{decision.why} ({life.status})"
            log.error(Event.WORKER_GAVE_UP, **facts, why=decision.why)
        else:
            slot.start_later(decision.pause_s, after=cause)
            lacked = life.ready and lacked_memory(life.status, out_of_memory=life.out_of_memory)
            if lacked:
                slot.spare_memory()
            said = {"cause": cause.value, "out_of_memory": lacked, "next_start_s": decision.pause_s}
            log.warning(Event.WORKER_DIED, **facts, **said)

    def _miss_redis(self, error: redis.RedisError) -> None:
        now = time.monotonic()
        if self._redis_lost_at is None:
            self._redis_lost_at = now
            log.warning(Event.REDIS_LOST, reason=str(error))
        elif 0 < self._give_up_after_s <= now - self._redis_lost_at and self._exit_code is None:
            self._say(f"Redis was away for {self._give_up_after_s:g} s: gave up")
            self._leave(ExitCode.NOT_FINISHED)

    def _miss_roster(self, error: OSError) -> None:
        """A worker without an entry works as any other; only its certificate is missed if this process is killed."""
        log.warning(Event.ROSTER_REFUSED, reason=str(error))
        self._say(
            f"the list of this host's workers cannot be written: {error}; the work goes on, but if this process is"
            " killed, what its workers hold waits until the holds expire"
        )

    def _remind(self, now: float) -> None:
        """No silent wait: what is waited for, every minute."""
        if now < self._remind_at:
            return
        self._remind_at = now + REMIND_S
        if self._redis_lost_at is not None:
            self._say(f"waiting for Redis, away for {now - self._redis_lost_at:.0f} s")
        starting = [slot.plan.name for slot in self._slots if slot.life is not None and not slot.life.ready]
        if starting:
            self._say(f"still starting: {', '.join(starting)} of {len(self._slots)} workers")

    def _is_over(self) -> bool:
        if all(slot.is_over for slot in self._slots):
            return True
        if self._exit_code is None or any(slot.pid is not None for slot in self._slots):
            return False
        lost_at = self._redis_lost_at
        return lost_at is not None and time.monotonic() - max(lost_at, self._last_death_at()) > LAST_CERTIFICATES_S

    def _last_death_at(self) -> float:
        return max(slot.life.started_at + slot.life.lived_s for slot in self._slots if slot.life is not None)

    def _end(self) -> ExitCode:
        failures = [f"worker {slot.plan.name}: {slot.gave_up}" for slot in self._slots if slot.gave_up]
        if self._exit_code is None:
            self._exit_code = ExitCode.NOT_FINISHED if failures else ExitCode.OK
        for failure in failures:
            self._say(f"gave up: {failure}")
        log.info(Event.WORKER_STOPPED, workers=len(self._slots), exit_code=int(self._exit_code))
        return self._exit_code


def _cause_of(life: Life) -> Cause:
    assert life.status is not None
    return cause_of(life.status, out_of_memory=life.out_of_memory, told_to_leave=life.told_to_leave)
