"""The last events of one job in its collector's process, for `status`; elsewhere its log file ends with the same."""

import logging
from collections import deque
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

MOST = 5
TAIL_BYTES = 32 * 1024
_OF_EVERY_EVENT = ("event", "job", "level", "logger", "timestamp", "epoch")


class RecentEvents(logging.Handler):
    """Keeps the last events of `job`, oldest first."""

    def __init__(self, job: str) -> None:
        super().__init__()
        self._job = job
        self._lines: deque[str] = deque(maxlen=MOST)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it if it is of this job."""
        if isinstance(record.msg, dict) and record.msg.get("job") == self._job:
            moment = datetime.fromtimestamp(record.created, UTC)
            self._lines.append(describe({**record.msg, "timestamp": moment.isoformat()}))

    def lines(self) -> list[str]:
        """Each as one line of text."""
        return list(self._lines)


def read_tail(log: Path, job: str) -> list[str]:
    """The last events of `job` in the log file `log`; nothing where there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - TAIL_BYTES))
            tail = file.read().splitlines()
    except OSError:
        return []
    events = [event for line in tail if (event := _parse(line)) and event.get("job") == job]
    return [describe(event) for event in events[-MOST:]]


def describe(event: dict[str, Any]) -> str:
    """`14:03:22 hold_expired mb=17`, in UTC."""
    facts = " ".join(f"{name}={value}" for name, value in event.items() if name not in _OF_EVERY_EVENT)
    return f"{str(event.get('timestamp', ''))[11:19]} {event.get('event', '')} {facts}".rstrip()


def _parse(line: bytes) -> dict[str, Any]:
    try:
        event = orjson.loads(line)
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}
