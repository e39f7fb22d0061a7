"""A suspect's turn in this worker: alone in an engine that runs nothing else, its hold armed. Between claim and run.

So a death while it runs is its own doing, and no other request's. One suspect at a time; the others wait here.
"""

import threading
import time
from collections.abc import Callable

import redis

from common.claims import Claims
from common.log import Event, get_logger
from worker.admission import Admission
from worker.ending import Ending
from worker.holds import Hold
from worker.keeper import Keeper
from worker.outage import Outage

LONGEST_WAIT_S = 300.0
"""For an empty engine; then the suspect goes back, for a worker that is empty sooner."""
LOOK_S = 0.02
NEXT_S = 0.3
"""How long the gate stays closed after a suspect, so that the next one finds the engine still empty."""
ARM_PAUSE_S = 1.0
MOST_ARMS = 15
"""Tries while Redis is away."""

log = get_logger(__name__)


class Solitude:
    """Who is alone in the engine. Any thread may call anything."""

    def __init__(
        self,
        *,
        claims: Claims,
        keeper: Keeper,
        admission: Admission,
        ending: Ending,
        outage: Outage,
        before_arming: Callable[[], object] = lambda: None,
    ) -> None:
        """`before_arming` is told that this process may be about to die."""
        self._claims = claims
        self._keeper = keeper
        self._admission = admission
        self._ending = ending
        self._outage = outage
        self._before_arming = before_arming
        self._lock = threading.Lock()
        self._inside: Hold | None = None

    @property
    def is_taken(self) -> bool:
        """Whether a suspect has the engine for itself: a message that arrives nevertheless must not run.

        Ask once the message is counted as received: then either this is true, or the suspect waits for the message.
        """
        with self._lock:
            return self._inside is not None

    def enter(self, hold: Hold) -> bool:
        """Wait until nothing else is in the engine, and arm `hold`; its run must follow, and `leave` in any case.

        False: it is not to be run here, since that took too long, this worker leaves, or the hold is lost. The gate
        must be held back meanwhile; renewals go on.
        """
        deadline = time.monotonic() + LONGEST_WAIT_S
        while not self._take(hold):
            out_of_time = time.monotonic() >= deadline or self._ending.is_leaving
            if out_of_time or not hold.is_wanted or not self._ending.wait(LOOK_S):
                return False
        return self._arm(hold)

    def leave(self, hold: Hold) -> None:
        """`hold` is not alone in the engine any more, if it was."""
        with self._lock:
            if self._inside is hold:
                self._inside = None

    def await_next(self) -> None:
        """Give the collector time to hint the next suspect, while the gate is still closed."""
        if not self._ending.is_leaving:
            self._ending.wait(NEXT_S)

    def _take(self, hold: Hold) -> bool:
        """Be inside first, then look whether the engine is empty: what comes in between is seen by one of the two."""
        with self._lock:
            if self._inside is not None:
                return False
            self._inside = hold
            if self._admission.load > 0 or any(other.kind != hold.kind for other in self._keeper.holds()):
                self._inside = None
            return self._inside is hold

    def _arm(self, hold: Hold) -> bool:
        """Say in Redis that its run begins; a hold that is not ours any more is lost."""
        self._before_arming()
        for _ in range(MOST_ARMS):
            if not hold.is_wanted:
                return False
            try:
                if self._claims.arm(hold.job, hold.mb, token=hold.token):
                    log.info(Event.SUSPECT_ARMED, job=hold.job, mb=hold.mb)
                    return True
            except redis.RedisError as error:
                self._outage.missed(error)
                if not self._ending.wait(ARM_PAUSE_S):
                    return False
                continue
            self._keeper.lose(hold, reason="not armed")
        return False
