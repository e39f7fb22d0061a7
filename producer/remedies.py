"""What a look at one micro-batch calls for. Pure: journal's side, Redis' side and circumstances in, a remedy out.

The janitor carries remedies out, each by compare-and-set, so one decided on an old look does no harm.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from common.claim_types import Seen
from producer.window import Doubt, Hold, OpenMicroBatch

OVERTAKEN_S = 10.0
"""Hints of one queue are served in order: one that was sent so much later and is claimed has overtaken a lost one."""
UNCLAIMED_S = 160.0
"""A hint may wait long behind others; after so long another one does no harm."""
VANISHED = "vanished"
"""Cause of a loss without a certificate of death: a host that is gone, or a worker that hangs."""


class Do(Enum):
    """What to do about a micro-batch."""

    NOTHING = "nothing"
    OFFER = "offer"
    """Redis lost it (a cut tail of its log)."""
    EXPIRE = "expire"
    """Its holder is lost."""
    HINT = "hint"
    """Its hint is lost."""
    MARK = "mark"
    """The journal has results of it that Redis does not know of."""
    REPAIR = "repair"
    """Results were published and lost before they were read."""


class Remedy(NamedTuple):
    """One thing to do. `mask`: positions to mark, or those whose results were lost. `cause`: of the hold's end."""

    do: Do
    mask: int = 0
    cause: str = ""


@dataclass(frozen=True)
class Circumstances:
    """What besides the micro-batch itself decides."""

    now_s: float
    """Monotonic."""
    expire_s: float
    hint_age_s: float
    """A younger hint may still be on its way to a claim."""
    empties: int
    """How often the results stream has been seen empty."""
    died: Mapping[str, str]
    """Incarnation -> cause, from certificates of death."""
    empty_queues: frozenset[str]
    served_queues: frozenset[str]
    """Queues that a live worker takes from."""
    claimed_s: Mapping[tuple[str, int], float]
    """(queue, priority) -> when the newest hint that is claimed was sent."""
    route: Callable[[str], str]
    """Model -> the queue its hints go to now."""


NOTHING = Remedy(Do.NOTHING)


def remedy_for(batch: OpenMicroBatch, seen: Seen | None, now: Circumstances) -> Remedy:
    """What `batch`, open in the journal and `seen` in Redis, calls for. Notes in `batch` what was seen of its hold."""
    if seen is None:
        return Remedy(Do.OFFER)
    if seen.st == "HELD" and (cause := now.died.get(seen.worker or "")) is not None:
        return Remedy(Do.EXPIRE, cause=cause)  # before anything else: a repair would leave the loss unknown
    lost = _lost_results(batch, seen, now)
    if lost:
        return Remedy(Do.REPAIR, mask=lost)
    if unknown := batch.got & ~seen.got:
        return Remedy(Do.MARK, mask=unknown)
    if seen.st == "HELD":
        return _held(batch, seen, now)
    batch.hold = None
    return Remedy(Do.HINT) if seen.st == "READY" and _hint_is_lost(batch, now) else NOTHING


def _lost_results(batch: OpenMicroBatch, seen: Seen, now: Circumstances) -> int:
    """Positions published by two looks ago, with the stream seen empty since, and still not in the journal."""
    published = seen.got & ~batch.got
    before = batch.doubt
    if published and before is not None and before.mask & published:
        if now.empties > before.empties:
            return before.mask & published
        return 0
    batch.doubt = Doubt(published, now.empties) if published else None
    return 0


def _held(batch: OpenMicroBatch, seen: Seen, now: Circumstances) -> Remedy:
    token = seen.token or ""
    if batch.hold is None or (batch.hold.token, batch.hold.beat) != (token, seen.beat):
        batch.hold = Hold(token, seen.beat, now.now_s)
    if now.now_s - batch.hold.since_s >= now.expire_s:
        return Remedy(Do.EXPIRE, cause=VANISHED)
    return NOTHING


def _hint_is_lost(batch: OpenMicroBatch, now: Circumstances) -> bool:
    if now.now_s < batch.quiet_until_s:
        return False
    hint = batch.hint
    if hint is None:
        return False  # it waits for its turn
    age_s = now.now_s - hint.at_s
    if age_s < now.hint_age_s:
        return False
    if hint.queue in now.empty_queues or age_s >= UNCLAIMED_S:
        return True
    if hint.queue not in now.served_queues and now.route(batch.row.model) in now.served_queues:
        return True
    return now.claimed_s.get((hint.queue, hint.priority), 0.0) >= hint.at_s + OVERTAKEN_S
