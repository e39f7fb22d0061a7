"""The door that hints come in by: whatever else somebody put into our queues costs a log line, and nothing else.

Without it kombu and Celery would end the process for a message that is no JSON or lacks a field, unpack what claims to
be compressed, and start follow-up tasks that a message names. What is refused is gone: the janitor of a job that it was
a hint for sends another.
"""

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any

from kombu.transport import redis as kombu_redis
from kombu.transport.virtual import Transport
from kombu.utils.json import loads

from common import keys
from common.broker import TASK_NAME
from common.log import Event, get_logger
from common.wire import is_job_id

LONGEST_BODY = 16 * 1024
"""Of a hint's body as it travels; ours are a tenth of a kilobyte."""
MOST_NUMBER = 2**63
_UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
_HEADERS_WITHOUT = ("eta", "expires", "compression", "chord", "retries")
"""A hint runs at once, as it is, and once."""

log = get_logger(__name__)


def guard_queues() -> None:
    """Let every connection of this process refuse what is no hint."""
    kombu_redis.loads = _load
    Transport._deliver = _delivering(Transport._deliver)


def find_fault(message: object) -> str | None:
    """What is wrong with `message` as a hint, or None. Never quotes it."""
    try:
        return _fault_of(message)
    except _UNREADABLE as error:
        return f"it cannot be read: {type(error).__name__}"


def _fault_of(message: Any) -> str | None:
    headers, properties = message["headers"], message["properties"]
    if (message["content-type"], message["content-encoding"]) != ("application/json", "utf-8"):
        return "it is no JSON"
    if headers["task"] != TASK_NAME or not isinstance(headers["id"], str):
        return "it is for another task"
    if any(headers.get(name) for name in _HEADERS_WITHOUT):
        return f"it has one of {', '.join(_HEADERS_WITHOUT)}"
    if not isinstance(properties["delivery_tag"], str) or not isinstance(properties["delivery_info"], dict):
        return "it has no way back"
    if properties["body_encoding"] != "base64" or len(message["body"]) > LONGEST_BODY:
        return "its body is too long, or not encoded as ours"
    arguments, named, more = json.loads(base64.b64decode(message["body"], validate=True))
    if named or any(more.values()):
        return "it names arguments, or what is to follow"
    return _fault_of_arguments(*arguments)


def _fault_of_arguments(version: object, job: object, mb: object, requests: object) -> str | None:
    if not all(_is_number(each) for each in (version, mb, requests)):
        return "its numbers are none"
    return None if isinstance(job, str) and is_job_id(job) else "it names no job"


def _is_number(value: object) -> bool:
    return type(value) is int and 0 <= value < MOST_NUMBER


def _delivering(deliver: Callable[[Any, Any, str], None]) -> Callable[[Any, Any, str], None]:
    def deliver_sound(transport: Any, message: Any, queue: str) -> None:
        fault = find_fault(message) if str(queue).startswith(keys.QUEUE_PREFIX) else _find_fault_of_control(message)
        if fault is None:
            deliver(transport, message, queue)
        else:
            log.warning(Event.HINT_REFUSED, queue=queue, reason=fault)

    return deliver_sound


def _find_fault_of_control(message: Any) -> str | None:
    """Of what Celery's remote control is sent: kombu reads the envelope, Celery guards itself against the rest."""
    try:
        properties = message["properties"]
        sound = isinstance(properties["delivery_tag"], str) and isinstance(properties["delivery_info"], Mapping)
        base64.b64decode(message["body"], validate=True)
    except _UNREADABLE as error:
        return f"it cannot be read: {type(error).__name__}"
    return None if sound and not (message.get("headers") or {}).get("compression") else "it is no message of Celery's"


def _load(text: str) -> Any:
    """The JSON `text`, or None, in which a fault is found."""
    try:
        return loads(text)
    except _UNREADABLE:
        return None
