"""Celery as this worker uses it: a threads pool that receives hints, with our gate, our signals and our logs.

Celery carries hints and nothing rests on it (docs/queue-protocol.md).
"""

import functools
import logging
import signal
import socket
import warnings
from collections.abc import Callable
from typing import Any

import redis
from celery import Celery, signals
from celery.exceptions import CPendingDeprecationWarning, SecurityWarning
from celery.worker import state as celery_state
from celery.worker.control import Panel
from celery.worker.heartbeat import Heart
from celery.worker.pidbox import Pidbox
from kombu import Connection
from kombu.transport.virtual import QoS

from common import keys
from common.log import Event, get_logger, redact_value
from worker.admission import Admission, gate_step
from worker.ending import Ending
from worker.engines.base import EngineFacts
from worker.hint_door import guard_queues

LEAST_THREADS = 16
MOST_THREADS = 512
RECONNECT_S = 4.0
"""Longest pause between two tries to reach a lost Redis."""
_HANDLED = (signal.SIGTERM, signal.SIGINT)

log = get_logger(__name__)


def queues_of(facts: EngineFacts) -> tuple[str, ...]:
    """Names of the queues an engine's worker consumes: of each model it serves, and of exactly this build of it."""
    return tuple(
        queue for model in facts.served_models for queue in (keys.queue(model), keys.queue(model, facts.digest))
    )


def threads_for(target: int) -> int:
    """Pool threads, one a micro-batch held: only an upper bound, requests are what is counted.

    Towards a job's end micro-batches have few requests, down to one. A thread is made when it is first needed.
    """
    return min(MOST_THREADS, max(LEAST_THREADS, target))


def make_consumer(app: Celery, *, name: str, admission: Admission, ending: Ending) -> Any:
    """Celery's worker over `app`; its `start` blocks, from the main thread, until the drain is over."""
    _quiet_celery()
    _wait_for_nobody(ending)
    guard_queues()
    app.conf.result_backend_thread_safe = True  # or each thread looks for the back end that we do not have
    app.steps["consumer"].add(gate_step(admission))

    def on_received(request: Any, **_: object) -> None:
        arguments = request.args
        requests = arguments[3] if len(arguments) > 3 else 1
        admission.received(request.id, requests if isinstance(requests, int) else 1)

    signals.task_received.connect(on_received, weak=False)
    worker = app.Worker(
        hostname=f"{name}@{socket.gethostname()}",
        pool="threads",
        concurrency=threads_for(admission.target),
        loglevel="WARNING",
        quiet=True,
        without_gossip=True,
        without_mingle=True,
    )

    def install_handlers(_worker: object) -> None:
        for signum in _HANDLED:
            signal.signal(signum, ending.on_signal)

    worker.install_platform_tweaks = install_handlers
    worker.set_process_status = _leave_title_alone
    return worker


def _wait_for_nobody(ending: Ending) -> None:
    """Replace long waits in Celery: its heartbeat's for Redis, its shutdown's for what runs, those between two tries.

    The heartbeat's held up the whole consumer, a drain too; its news go out with the next connection all the same.
    """

    def shut_down(_state: object, **_: object) -> dict[str, str]:
        ending.leave()
        return {"ok": "draining"}

    Heart._send = functools.partialmethod(Heart._send, retry=False)
    # kombu's pauses grow to half a minute
    Connection.ensure_connection = functools.partialmethod(Connection.ensure_connection, interval_max=RECONNECT_S)
    Pidbox.start = _if_there_is_room(Pidbox.start)
    Panel.data["shutdown"] = shut_down
    for name in ("conf", "report", "stats"):  # of a unix socket Celery tells the whole address, its password too
        Panel.data[name] = _redacted(Panel.data[name])
    # at each lost connection kombu would send all hints in hand again, or dump them into files: their threads go on
    QoS.restore_at_shutdown = False


def _redacted(answer: Callable[..., object]) -> Callable[..., object]:
    """What Celery's remote control and Flower are told, without passwords."""

    def answer_redacted(*arguments: object, **named: object) -> object:
        return redact_value(answer(*arguments, **named))

    return answer_redacted


def _if_there_is_room(start: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """A full server takes no declaration of the remote control's queue: work goes on without it."""

    def start_if_there_is_room(pidbox: Any, consumer: Any) -> None:
        try:
            start(pidbox, consumer)
        except redis.OutOfMemoryError as error:
            log.warning(Event.CONTROL_REFUSED, reason=str(error))

    return start_if_there_is_room


def tell_to_stop() -> None:
    """Make the consumer end as soon as its loop turns: receive no more, wait for the pool. Takes no lock."""
    celery_state.should_stop = 0


def _quiet_celery() -> None:
    """Keep our logging as it is, and out of it what is no news here."""
    # as root, Celery warns of what pickled messages could do; ours are JSON only
    warnings.filterwarnings("ignore", category=SecurityWarning)
    # what runs when a connection is lost goes on: its results do not go through that connection
    warnings.filterwarnings("ignore", category=CPendingDeprecationWarning)
    signals.setup_logging.connect(_leave_logging_alone, weak=False)
    logging.getLogger("celery.app.trace").addFilter(_is_no_handed_back_hint)


def _leave_logging_alone(**_: object) -> None:
    """A receiver of this signal is all it takes: Celery then sets up no logging of its own."""


def _leave_title_alone(_info: str) -> None:
    """Celery would hide the command line behind a title of its own."""


def _is_no_handed_back_hint(record: logging.LogRecord) -> bool:
    """Celery logs a traceback for each hint handed back, and handing back is what a drain is for."""
    data = getattr(record, "data", None)
    return not (isinstance(data, dict) and data.get("description") == "rejected")
