"""One worker process: its parts, and their order at the start and at the end.

The engine is up before the consumer connects, so that no cold worker takes work; at the end the consumer stops first,
then what is held is settled, then the engine stops.
"""

import concurrent.futures
import contextlib
import os
import random
import signal
import threading
import time
from types import FrameType

import psutil

from common.broker import check_server, make_app, make_client, redis_url
from common.claims import Claims
from common.errors import BakehouseError, StoppedError
from common.log import Event, get_logger, redact
from common.settings import Settings
from worker.admission import Admission
from worker.clock import LoopClock
from worker.consumer import make_consumer, queues_of, tell_to_stop, threads_for
from worker.ending import Ending
from worker.engine_choice import make_engine
from worker.engine_loop import EngineLoop
from worker.engines.base import Engine, EngineFacts
from worker.engines.vllm_child import WORKER_PID_VARIABLE
from worker.gpu_metrics import find_devices
from worker.keeper import Keeper
from worker.options import EXIT_DIED, EXIT_STOPPED, WorkerOptions
from worker.outage import Outage
from worker.presence import Presence
from worker.probes import Probes, open_port
from worker.result_writer import WorkerIdentity
from worker.runner import Surroundings
from worker.start_phases import FirstToken, StartPhases
from worker.target import LOOK_S, TargetPolicy
from worker.tasks import HintDesk, register_task
from worker.throughput import Throughput
from worker.tracing import Tracing, start_tracing
from worker.watchdog import Limits, Watchdog

ENGINE_STOP_S = 12.0
EARLY_LOOK_S = 0.1
TELL_EVERY_S = 10.0
HOLDS_LOOK_S = 0.05

log = get_logger(__name__)


class LeftEarlyError(BakehouseError):
    """Told to leave while the engine still started: no work was taken."""


class WorkerProcess:
    """One life of one worker. Made and run in the main thread."""

    def __init__(self, options: WorkerOptions, settings: Settings) -> None:
        self._options = options
        self._settings = settings
        self._left_early = False
        self._url = redis_url(settings)
        self._client = make_client(self._url, socket_timeout_s=settings.socket_timeout_s)
        self._phases = StartPhases(spawned_at=options.spawned_at)
        self._loop = EngineLoop()
        self._outage = Outage()
        self._tracing = Tracing()
        self._gpus = find_devices(os.environ)
        self._ending = Ending(self._loop, drain_timeout_s=settings.drain_timeout_s)
        self._probes = Probes(self._ending, self._outage)
        self._presence = Presence(
            self._client,
            incarnation=options.incarnation,
            gpu=options.gpu,
            engine=options.engine,
            every_s=settings.presence_s,
            outage=self._outage,
        )

    def run(self) -> int:
        """Block until told to leave; returns the exit code.

        Raises `RefusedError` and `EngineStartError` before any work, `LeftEarlyError` when told to leave by then.
        """
        for signum in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, self._leave_early)
        threading.excepthook = self._on_thread_error
        os.environ[WORKER_PID_VARIABLE] = str(os.getpid())
        log.info(Event.WORKER_STARTED, worker=self._options.incarnation, pid=os.getpid(), gpu=self._options.gpu)
        self._check_redis()
        metrics = open_port(self._settings, self._probes, gpus=self._gpus, restarts=self._options.restarts)
        engine = make_engine(self._options)
        self._phases.end("process")
        self._presence.start(metrics=metrics)
        self._loop.start()
        return self._work(engine, self._start_engine(engine))

    def abandon(self) -> None:
        """Be live no more, and leave no process of an engine that still starts, after a failed start."""
        for child in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        self._presence.stop()

    def _leave_early(self, _signum: int, _frame: FrameType | None) -> None:
        """A plain note: an error raised from a handler may be swallowed wherever it strikes."""
        self._left_early = True

    def _check_early_leave(self) -> None:
        if self._left_early:
            raise LeftEarlyError("told to leave")

    def _check_redis(self) -> None:
        """Refuse a server on which work could be lost; wait later for one that is away."""
        try:
            log.info(Event.REDIS_FOUND, where=redact(self._url), version=check_server(self._client, url=self._url))
        except StoppedError as error:
            log.warning(Event.REDIS_LOST, reason=str(error))

    def _start_engine(self, engine: Engine) -> EngineFacts:
        """Start it in the loop's thread, and say every few seconds how far memory has grown."""
        model = self._options.model
        log.info(Event.MODEL_LOADING, model=model, engine=self._options.engine, memory_mib=_memory_mib())
        started = time.monotonic()
        tell_at = started + TELL_EVERY_S
        starting = self._loop.submit(engine.start())
        while not starting.done():
            self._check_early_leave()
            concurrent.futures.wait([starting], timeout=EARLY_LOOK_S)
            if (now := time.monotonic()) >= tell_at:
                tell_at = now + TELL_EVERY_S
                elapsed_s = round(now - started, 1)
                log.info(Event.MODEL_LOADING, model=model, elapsed_s=elapsed_s, memory_mib=_memory_mib())
        self._check_early_leave()  # a signal to the group ends an engine that starts: no failure
        facts = starting.result()
        self._phases.engine_up(facts)
        self._ending.watch_children()
        log.info(
            Event.MODEL_LOADED,
            models=facts.served_models,
            engine=facts.name,
            dtype=facts.dtype,
            concurrency=facts.concurrency,
            kv_cache_tokens=facts.kv_cache_tokens,
            elapsed_s=round(time.monotonic() - started, 1),
            memory_mib=_memory_mib(),
        )
        return facts

    def _work(self, engine: Engine, facts: EngineFacts) -> int:
        settings, ending, loop = self._settings, self._ending, self._loop
        policy = TargetPolicy(facts.concurrency, share=self._options.target_share)
        admission = Admission(policy.target)
        keeper = self._make_keeper(facts)
        desk = self._make_desk(engine, facts, admission=admission, keeper=keeper)
        app = make_app(settings, queues=queues_of(facts))
        register_task(app, desk, ending)
        consumer = make_consumer(app, name=self._options.incarnation, admission=admission, ending=ending)
        self._plan_end(admission, keeper)
        watchdog = self._make_watchdog(engine, facts, admission, keeper)
        keeper.start(loop, every_s=settings.publish_s)
        watchdog.start()
        throughput = Throughput(self._gpus)
        self._phases.end("consumer")
        self._tell_phases(Event.WORKER_READY)
        self._presence.ready(
            facts,
            counts=lambda: {
                "target": admission.target,
                "in_flight": admission.in_flight,
                "results": keeper.published,
                "idle_s": int(watchdog.idle_s()),
                **throughput.fields(tokens=keeper.tokens, busy_s=watchdog.busy_s, now_s=time.monotonic()),
            },
        )
        self._keep_target(engine, policy, admission)
        self._probes.consuming(watchdog)
        consumer.start()
        told_to_leave = ending.is_leaving
        ending.leave()  # however Celery came to its end: what is held is settled first
        while keeper.holds() and ending.wait(HOLDS_LOOK_S):
            pass
        watchdog.stop()
        return self._stop(engine, code=ending.exit_code() if told_to_leave else EXIT_STOPPED)

    def _keep_target(self, engine: Engine, policy: TargetPolicy, admission: Admission) -> None:
        """Say what the target is and why, now and at each change."""

        def look() -> None:
            if reason := policy.look(now=time.monotonic(), preemptions=engine.preemptions()):
                admission.set_target(policy.target)
                log.info(Event.TARGET_SET, target=policy.target, most=policy.most, reason=reason)

        reason = "what the engine runs at once, and a quarter"
        if policy.target < policy.most:
            reason = "memory did not suffice for more in an earlier life"
        log.info(Event.TARGET_SET, target=policy.target, most=policy.most, reason=reason)
        self._loop.every(LOOK_S, look)

    def _on_first_token(self, took_s: float) -> None:
        self._phases.first_token(took_s)
        self._tell_phases(Event.TOKEN_MADE)

    def _tell_phases(self, event: Event) -> None:
        """How far the start is: in the log and, through the heartbeat, to the supervisor."""
        self._presence.set_start(self._phases.to_json())
        elapsed_s, phases_s = round(self._phases.total_s, 1), self._phases.rounded()
        log.info(event, elapsed_s=elapsed_s, phases_s=phases_s, memory_mib=_memory_mib())

    def _make_keeper(self, facts: EngineFacts) -> Keeper:
        return Keeper(
            Claims(self._client),
            incarnation=self._options.incarnation,
            digest=facts.digest,
            renew_s=self._settings.renew_s,
            outage=self._outage,
            is_waiting=self._ending.wait,
            on_taken=self._presence.work_came,
        )

    def _make_desk(self, engine: Engine, facts: EngineFacts, *, admission: Admission, keeper: Keeper) -> HintDesk:
        first_token = FirstToken(engine, tell=self._on_first_token)
        identity = WorkerIdentity(self._options.incarnation, facts)
        self._tracing = start_tracing(identity)
        around = Surroundings(
            engine,
            identity,
            LoopClock(),
            random.Random(),
            first_wait_s=self._settings.retry_wait_s,
            on_asked=first_token.asked,
            on_places=admission.move,
            on_resting=admission.rest,
            on_cut=lambda: self._ending.note_cut(engine.steps()),
        )
        return HintDesk(
            around=around,
            claims=Claims(self._client),
            keeper=keeper,
            admission=admission,
            loop=self._loop,
            ending=self._ending,
            outage=self._outage,
            before_arming=self._presence.beat,  # what it has done so far is known, should it die now
            tracing=self._tracing,
        )

    def _make_watchdog(self, engine: Engine, facts: EngineFacts, admission: Admission, keeper: Keeper) -> Watchdog:
        return Watchdog(
            engine=engine,
            loop=self._loop,
            admission=admission,
            keeper=keeper,
            ending=self._ending,
            outage=self._outage,
            client=self._client,
            queues=queues_of(facts),
            limits=Limits(self._settings.hang_s, self._settings.give_up_after_s),
            threads=threads_for(admission.target),
        )

    def _plan_end(self, admission: Admission, keeper: Keeper) -> None:
        self._ending.when_leaving(tell_to_stop)
        self._ending.when_leaving(admission.close)
        self._ending.when_leaving(lambda: self._presence.set_state("draining"))
        self._ending.when_stopping(keeper.stop_runs)
        self._ending.last_rite(keeper.publish)
        self._ending.last_rite(self._presence.beat)
        self._ending.last_rite(self._tracing.close)
        for signum in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, self._ending.on_signal)
        self._check_early_leave()

    def _stop(self, engine: Engine, *, code: int) -> int:
        """Everything is handed back, or could not be: end engine and loop."""
        log.info(Event.WORKER_DRAINED, exit_code=int(code))
        self._presence.stop()
        self._tracing.close()
        try:
            self._loop.submit(engine.stop()).result(timeout=ENGINE_STOP_S)
        except TimeoutError:
            log.warning(Event.WORKER_STOPPED, reason="the engine does not stop by itself")
        self._loop.stop()
        log.info(Event.WORKER_STOPPED, exit_code=int(code))
        return int(code)

    def _on_thread_error(self, error: threading.ExceptHookArgs) -> None:
        """A thread that ends by an error would leave its work undone, and nobody would know."""
        reason = f"{error.exc_type.__name__}: {error.exc_value}"
        self._ending.die(EXIT_DIED, event=Event.WORKER_DIED, reason=reason)


def _memory_mib() -> int:
    return int(psutil.Process().memory_info().rss >> 20)
