"""Whether Redis is there, as all threads of a worker see it together: told once when it goes, once when it is back."""

import threading
import time

import redis

from common.log import Event, get_logger

log = get_logger(__name__)


class Outage:
    """Since when Redis has been away. Any thread may call anything."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._since: float | None = None

    def missed(self, error: redis.RedisError) -> None:
        """A call failed."""
        with self._lock:
            is_first = self._since is None
            self._since = time.monotonic() if self._since is None else self._since
        if is_first:
            log.warning(Event.REDIS_LOST, reason=str(error))

    def met(self) -> None:
        """A call succeeded."""
        if self._since is None:
            return
        lasted_s = self.lasted_s()
        with self._lock:
            self._since = None
        log.info(Event.REDIS_FOUND, away_s=round(lasted_s, 1))

    def lasted_s(self) -> float:
        """How long Redis has been away by now; 0 while it is there."""
        since = self._since
        return 0.0 if since is None else time.monotonic() - since
