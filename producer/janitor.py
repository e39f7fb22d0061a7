"""The janitor: one look at a job every 2 s, then whatever was lost on the way is set right, each by compare-and-set.

`remedies` decides, here it is done. A crash between any two steps leaves what the next look finds again: what a
remedy changes in Redis is either noted in the journal before, or only lets work run again.
"""

from collections.abc import Mapping
from typing import Any, cast

from common import keys
from common.claim_types import Look, Seen
from common.errors import ErrorKind
from common.log import Event, get_logger
from common.wire import Result
from producer import metrics
from producer.given_up import give_up
from producer.isolation import Isolation, LostHold
from producer.job import FencedError, Job
from producer.ownership import check_owner, offer_again, rebuild
from producer.receiver import Receiver
from producer.remedies import Circumstances, Do, Remedy, remedy_for
from producer.steering import IN_REDIS
from producer.window import OpenMicroBatch

BLIND_LOOKS = 3
"""After so many looks' time without one, holds are observed anew: who could not look cannot say that nobody renewed."""
CERTIFICATE_S = 3600.0
REPAIRS = 2
"""So often results may be lost after they were published; the next time they become errors."""

log = get_logger(__name__)

Found = tuple[OpenMicroBatch, Seen | None, Remedy]


class Janitor:
    """Looks after one job's micro-batches in Redis."""

    def __init__(self, job: Job, receiver: Receiver) -> None:
        self._job = job
        self._receiver = receiver
        self._isolation = Isolation(job, receiver)
        self._looked_s: float | None = None
        self._certified: dict[str, float] = {}
        self.held: int | None = None
        """Micro-batches held by workers, as of the last look; None while that saw claims still granted."""

    def look(self, *, now_s: float) -> bool:
        """Look once and set right what is wrong; whether any hold has moved since the last look.

        Raises `FencedError`, `redis.RedisError`, `StoppedError`; a part of the remedies may be done by then.
        """
        job = self._job
        if self._looked_s is not None and now_s - self._looked_s > BLIND_LOOKS * job.settings.look_s:
            for batch in job.window.open.values():
                batch.hold = None
        circumstances = self._circumstances(now_s)  # before the look: a hint taken in between is seen claimed
        self.held = None
        look = job.claims.look(job.id)
        self._looked_s = now_s
        if look.epoch != job.journal.epoch:
            job.journal.check_epoch()
        check_owner(job, epoch=look.epoch or 0, manifest=look.fields.get("manifest", ""))
        if look.epoch != job.journal.epoch or look.state not in IN_REDIS[job.journal.course.state]:
            rebuild(job)
            return True
        granted = look.state == "open"
        self.held = None if granted else sum(seen.st == "HELD" for seen in look.micro_batches.values())
        self._pin(look)
        self._close_strays(look)
        return self._mend(look, circumstances)

    def change_course(self) -> None:
        """The job has another state now: what is held is to be seen anew, and all that is ready to be hinted."""
        self.held = None
        for batch in self._job.window.open.values():
            batch.hint = None  # whoever it came to was refused
            batch.quiet_until_s = 0.0

    def let_suspects_travel(self, *, now_s: float) -> None:
        """Hint suspects whose turn it is: at once when another one is done, not only at the next look."""
        if self._job.journal.course.state == "open":
            self._isolation.let_travel(now_s=now_s)

    def _circumstances(self, now_s: float) -> Circumstances:
        job = self._job
        queues = {batch.hint.queue for batch in job.window.open.values() if batch.hint is not None}
        return Circumstances(
            now_s=now_s,
            expire_s=job.settings.expire_s,
            hint_age_s=job.settings.look_s,
            empties=self._receiver.empties,
            died=self._certificates(now_s),
            empty_queues=job.hints.empty_queues(job.client, sorted(queues)),
            served_queues=job.fleet.queues(),
            claimed_s=job.window.claimed_s,
            route=job.route,
        )

    def _certificates(self, now_s: float) -> Mapping[str, str]:
        """Incarnation -> cause of each certified death; drops certificates that have stood for an hour."""
        found = cast(Any, self._job.client.hgetall(keys.DIED))
        died = {name.decode(errors="replace"): cause.decode(errors="replace") for name, cause in found.items()}
        self._certified = {name: self._certified.get(name, now_s) for name in died}
        old = [name for name, since_s in self._certified.items() if now_s - since_s >= CERTIFICATE_S]
        if old:
            self._job.client.hdel(keys.DIED, *old)
        return died

    def _pin(self, look: Look) -> None:
        """Note the builds that the job's first claims have pinned."""
        job = self._job
        if look.digests.keys() - job.journal.digests.keys():
            with job.journal.writing():
                job.journal.pin(look.digests)
            job.models.update(job.fleet, job.journal.digests)

    def _close_strays(self, look: Look) -> None:
        """In Redis and not open in the journal: complete, and its closing was lost."""
        strays = sorted(look.micro_batches.keys() - self._job.window.open.keys())
        if strays and "FENCED" in self._job.claims.close(self._job.id, strays, epoch=self._job.journal.epoch):
            raise FencedError

    def _mend(self, look: Look, now: Circumstances) -> bool:
        moved = False
        found: dict[Do, list[Found]] = {do: [] for do in Do}
        for mb, batch in self._job.window.open.items():
            seen, hold = look.micro_batches.get(mb), batch.hold
            remedy = remedy_for(batch, seen, now)
            found[remedy.do].append((batch, seen, remedy))
            if seen is not None:
                batch.claimed = False
                if seen.st != "READY":
                    self._job.window.note_claim(batch)
            moved = moved or (batch.hold is not None and batch.hold is not hold)
        self._mark(found[Do.MARK])
        self._expire(found[Do.EXPIRE], now)
        if self._job.journal.course.state == "cancelling":
            return moved  # nothing is to run again
        self._repair(found[Do.REPAIR], now)
        unclaimed = [batch for batch, _, _ in self._still_open(found[Do.HINT])]
        self._hint(unclaimed, now, reason="unclaimed")
        if unclaimed:
            log.info(Event.HINT_REPEATED, job=self._job.id, micro_batches=len(unclaimed))
        if not self._job.full:
            offer_again(self._job, [batch for batch, _, _ in self._still_open(found[Do.OFFER])])
        return moved

    def _still_open(self, found: list[Found]) -> list[Found]:
        """What was found open, less what has been completed or parted since, by an earlier remedy of the same look."""
        return [one for one in found if one[0].row.mb in self._job.window.open]

    def _mark(self, found: list[Found]) -> None:
        job = self._job
        for batch, _, remedy in found:
            if job.claims.mark(job.id, batch.row.mb, epoch=job.journal.epoch, mask=remedy.mask) == "FENCED":
                raise FencedError

    def _expire(self, found: list[Found], now: Circumstances) -> None:
        """Take micro-batches from lost holders, then note the losses, then hint.

        A crash before the note loses the blame, not the work; one before the hint leaves it ready and unclaimed.
        """
        job = self._job
        if found:
            self._receiver.receive()  # what the dead had published is not blamed, and need not run again
        lost: list[LostHold] = []
        for batch, seen, remedy in self._still_open(found):
            if seen is None or seen.token is None:
                continue
            answer = job.claims.expire(job.id, batch.row.mb, epoch=job.journal.epoch, token=seen.token, beat=seen.beat)
            if answer == "FENCED":
                raise FencedError
            batch.hold = None
            if answer == "OK":
                lost.append(LostHold(batch, seen, remedy.cause))
        if not lost:
            return
        for batch, seen, cause in lost:
            metrics.REDELIVERIES.inc()
            log.warning(Event.HOLD_EXPIRED, job=job.id, mb=batch.row.mb, worker=seen.worker, cause=cause)
        self._hint(self._isolation.note(lost), now, reason="redelivery")

    def _repair(self, found: list[Found], now: Circumstances) -> None:
        """Offer anew what was published and lost; what was lost again and again becomes an error."""
        job = self._job
        for batch, _, remedy in self._still_open(found):
            batch.doubt = None
            if batch.repairs >= REPAIRS:
                self._receiver.settle(self._internal_errors(batch, remedy.mask), [])
                continue
            with job.journal.writing():
                job.journal.add_repair(batch.row.mb)
            batch.repairs += 1
            if "FENCED" in job.claims.close(job.id, [batch.row.mb], epoch=job.journal.epoch):
                raise FencedError
            offer_again(job, [batch])
            log.error(Event.MICRO_BATCH_REPAIRED, job=job.id, mb=batch.row.mb, times=batch.repairs)
        full = [batch for batch, seen, _ in self._still_open(found) if seen and seen.st == "FULL"]
        self._hint(full, now, reason="repair")

    def _hint(self, batches: list[OpenMicroBatch], now: Circumstances, *, reason: str) -> None:
        if self._job.journal.course.state == "open":  # else no claim is granted; a resume hints all that are ready
            self._job.hints.send(batches, route=self._job.route, now_s=now.now_s, reason=reason)

    def _internal_errors(self, batch: OpenMicroBatch, mask: int) -> list[Result]:
        message = f"the result could not be read {REPAIRS + 1} times; see quarantine/ in the job directory"
        reasons = {seq: message for i, seq in enumerate(batch.row.seqs) if mask >> i & 1}
        return give_up(self._job, batch, reasons, kind=ErrorKind.INTERNAL_ERROR)
