"""The audit: who gave which command about a job, from which host, in `logs/audit.log` of the job's directory.

A line a command, appended by the command itself and never rotated. A wish from another host carries who left it, and
the job's collector logs it when it hears it.
"""

import os
import pwd
import re
import socket
from collections.abc import Mapping
from dataclasses import fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import orjson

from common.log import Event, get_logger, redact

if TYPE_CHECKING:
    from producer.cli_options import PlaceOptions
    from producer.job_directory import JobDirectory

_LEFT_OUT = frozenset({"redis_url", "redis_password_file", "vllm_flags", "config", "job"})
"""Options that may hold a secret, or say nothing of the job."""
_NO_NAME = re.compile(r"[^A-Za-z0-9_.-]+")
_LONGEST = 64

log = get_logger(__name__)


def by_whom() -> str:
    """The user of this process and its host, `ann@head`."""
    return f"{_name(_user())}@{_name(socket.gethostname())}"


def note_command(
    verb: str, directory: "JobDirectory | None", *, job: str, options: "PlaceOptions | None" = None
) -> None:
    """Note that this user gave `verb`: in the job's audit where its directory is here, and in this process's log.

    A disk that takes no line of it is warned of, and stops nobody from cancelling a job.
    """
    facts = {"verb": verb, "job": job, "by": by_whom(), "uid": os.getuid(), "options": _given(options)}
    log.info(Event.COMMAND_GIVEN, **facts)
    if directory is None:
        return
    now = datetime.now(UTC).isoformat()
    try:
        _append(directory, {"event": Event.COMMAND_GIVEN, "timestamp": now, "pid": os.getpid(), **facts})
    except OSError as error:
        log.warning(Event.COMMAND_GIVEN, unwritten=error.strerror, **facts)


def _append(directory: "JobDirectory", line: Mapping[str, object]) -> None:
    """One write at the file's end: commands at the same moment do not mix their lines."""
    descriptor = os.open(directory.audit_log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
    finally:
        os.close(descriptor)


def _given(options: "PlaceOptions | None") -> dict[str, Any]:
    """What was given, by its name."""
    if options is None:
        return {}
    found = ((item.name, getattr(options, item.name)) for item in fields(options) if item.name not in _LEFT_OUT)
    return {name: redact(str(value)) for name, value in found if value not in (None, False, [])}


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # in a container a user may be a number alone
        return f"uid{os.getuid()}"


def _name(text: str) -> str:
    return _NO_NAME.sub("-", text)[:_LONGEST]
