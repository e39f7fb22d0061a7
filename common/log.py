"""Structured logs: JSON lines when not a terminal, a closed list of event names, secrets and texts never in them.

Set up once a process by `configure`; elsewhere `log = get_logger()` and `log.info(Event.ENGINE_READY, model=...)`.
The level is what an operator must do: debug nothing, info know it, warning look at it, error act.
"""

import logging
import re
import sys
from collections.abc import MutableMapping
from enum import StrEnum
from pathlib import Path
from typing import Any, cast

import structlog

from common.log_file import LogFile


class Event(StrEnum):
    """Every event there is, as noun_verbed."""

    WORKER_STARTED = "worker_started"
    WORKER_READY = "worker_ready"
    TOKEN_MADE = "token_made"
    WORKER_DRAINING = "worker_draining"
    WORKER_DRAINED = "worker_drained"
    WORKER_STOPPED = "worker_stopped"
    WORKER_DIED = "worker_died"
    WORKER_RESTARTED = "worker_restarted"
    WORKER_GAVE_UP = "worker_gave_up"
    NODE_IDLED = "node_idled"
    ROSTER_REFUSED = "roster_refused"
    MODEL_LOADING = "model_loading"
    MODEL_LOADED = "model_loaded"
    ENGINE_DIED = "engine_died"
    ENGINE_HUNG = "engine_hung"
    TARGET_SET = "target_set"
    HINT_DROPPED = "hint_dropped"
    HOLD_CLAIMED = "hold_claimed"
    HOLD_LOST = "hold_lost"
    HOLD_RECLAIMED = "hold_reclaimed"
    HOLD_RELEASED = "hold_released"
    PAYLOAD_REFUSED = "payload_refused"
    REQUEST_FINISHED = "request_finished"
    REQUEST_RETRIED = "request_retried"
    REDIS_LOST = "redis_lost"
    REDIS_FOUND = "redis_found"
    REDIS_GIVEN_UP = "redis_given_up"
    REDIS_STARTED = "redis_started"
    CONTROL_REFUSED = "control_refused"
    JOB_CREATED = "job_created"
    JOB_CONTINUED = "job_continued"
    JOB_FINISHED = "job_finished"
    JOB_STOPPED = "job_stopped"
    JOB_WAITING = "job_waiting"
    JOB_REBUILT = "job_rebuilt"
    JOB_STEERED = "job_steered"
    JOB_SEALED = "job_sealed"
    DEADLINE_AT_RISK = "deadline_at_risk"
    DEADLINE_REGAINED = "deadline_regained"
    DEADLINE_MISSED = "deadline_missed"
    INPUT_READ = "input_read"
    PROCESSING_STARTED = "processing_started"
    HOLD_EXPIRED = "hold_expired"
    SUSPECTS_FOUND = "suspects_found"
    SUSPECT_ARMED = "suspect_armed"
    POISON_FOUND = "poison_found"
    HINT_RETURNED = "hint_returned"
    HINT_REPEATED = "hint_repeated"
    MICRO_BATCH_REPAIRED = "micro_batch_repaired"
    ENTRY_QUARANTINED = "entry_quarantined"
    COMMAND_RUN = "command_run"
    COMMAND_GIVEN = "command_given"
    WISH_HEARD = "wish_heard"
    PASSWORD_SHOWN = "password_shown"
    HINT_REFUSED = "hint_refused"
    COMMAND_FAILED = "command_failed"
    METRICS_SERVED = "metrics_served"
    TRACING_STARTED = "tracing_started"
    TRACING_REFUSED = "tracing_refused"
    MESSAGE_LOGGED = "message_logged"


_LINES = "json_lines"
_SECRET = re.compile(
    r"(hf_[A-Za-z0-9]{8,})"
    r"|(?<=://)[^\s\"']+(?=@)"
    r"|((?i:token|password|secret|api[_-]?key)\"?\s*[=:]\s*\"?)[^\s\",}]+"
)


def redact(text: str) -> str:
    """`text` with tokens and passwords in URLs replaced by `***`."""
    return _SECRET.sub(lambda found: (found.group(2) or "") + "***", text)


def configure(*, level: str = "info", file: Path | None = None, quiet_terminal: bool = False) -> None:
    """Send all logs of this process, also those of libraries, to stderr and to `file` (rotated).

    Lines of `log_lines` go to `file` alone where there is one. Raises `RefusedError` where it can never be opened.

    `quiet_terminal`: nothing below warning on stderr (a progress bar stands there).
    """
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        _redact_event,
    ]
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    terminal = logging.StreamHandler(sys.stderr)
    terminal.setFormatter(_formatter(shared, pretty=sys.stderr.isatty()))
    if quiet_terminal:
        terminal.setLevel(logging.WARNING)
    root = logging.getLogger()
    root.handlers = [terminal]
    if file is not None:
        rotating = LogFile(file)
        terminal.addFilter(lambda record: not hasattr(record, _LINES))
        rotating.setFormatter(_formatter(shared, pretty=False))
        root.addHandler(rotating)
    root.setLevel(logging.WARNING)
    for ours in ("common", "producer", "worker"):
        logging.getLogger(ours).setLevel(level.upper())


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """The logger of the module `name` (`__name__`)."""
    return cast(structlog.stdlib.BoundLogger, structlog.get_logger(name))


def log_lines(name: str, lines: list[bytes]) -> None:
    """Log `lines`, each a whole JSON object, at level info by the logger `name`: one write for all of them."""
    logger = logging.getLogger(name)
    if logger.isEnabledFor(logging.INFO):  # not `info`: to look for the caller would cost as much as all the rest
        extra = {_LINES: b"\n".join(lines).decode()}
        logger.handle(logger.makeRecord(name, logging.INFO, "", 0, "", (), None, extra=extra))


class _Formatter(structlog.stdlib.ProcessorFormatter):
    """Events as structlog renders them; lines that are rendered already as they are."""

    def format(self, record: logging.LogRecord) -> str:
        lines: str | None = getattr(record, _LINES, None)
        return super().format(record) if lines is None else lines


def _formatter(shared: list[structlog.typing.Processor], *, pretty: bool) -> logging.Formatter:
    renderer: structlog.typing.Processor
    renderer = structlog.dev.ConsoleRenderer() if pretty else structlog.processors.JSONRenderer(ensure_ascii=False)
    return _Formatter(
        foreign_pre_chain=shared,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
    )


def _redact_event(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for key, value in event.items():
        event[key] = redact_value(value)
    return event


def redact_value(value: object) -> object:
    """`value` with every text in it redacted; tuples become lists."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {name: redact_value(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [redact_value(each) for each in value]
    return redact(str(value)) if isinstance(value, BaseException) else value
