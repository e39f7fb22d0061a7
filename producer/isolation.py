"""Keeps requests that may kill their worker from all others; off a line's way, between a lost hold and the next hint.

`suspects` decides, here it is done. All of it follows from the journal: losses, which micro-batches are open, and of
which kind, so that a new collector goes on where an old one ended. Which suspects travel now is counted anew.
"""

from collections.abc import Iterable
from typing import Literal, NamedTuple

from common.claim_types import Offer, Seen
from common.errors import ErrorKind
from common.log import Event, get_logger
from producer import metrics
from producer.given_up import give_up
from producer.job import FencedError, Job
from producer.journal_reader import MicroBatchRow
from producer.ownership import put_up
from producer.payload import request_of
from producer.receiver import Receiver
from producer.suspects import Standing, cause_of_loss, explain, free_turns, judge, next_in_turn, part
from producer.window import OpenMicroBatch

log = get_logger(__name__)


class LostHold(NamedTuple):
    """A micro-batch taken from its holder, as that one had it, and the cause of the hold's end."""

    batch: OpenMicroBatch
    seen: Seen
    cause: str


class Parted(NamedTuple):
    """A micro-batch whose requests travel on in others."""

    batch: OpenMicroBatch
    rows: list[MicroBatchRow]
    offers: list[Offer]
    suspects: int


class Isolation:
    """One job's suspects."""

    def __init__(self, job: Job, receiver: Receiver) -> None:
        self._job = job
        self._receiver = receiver

    def note(self, lost: list[LostHold]) -> list[OpenMicroBatch]:
        """Journal the losses, and part micro-batches that hold suspects; returns those that may be hinted at once.

        One commit: after it each request travels in exactly one open micro-batch. A crash before it loses the blame,
        not the work; one after it leaves what the next look closes and offers.
        """
        job = self._job
        with job.journal.writing():
            for hold in lost:
                self._add_loss(hold)
            parted = list(self._part(hold.batch for hold in lost))
        for batch, _, _ in lost:
            batch.deliveries += 1
            if batch.row.kind == "solo":
                batch.hint = None  # it waits for its turn again
        travel_on = {hold.batch.row.mb: hold.batch for hold in lost}
        for one in parted:
            del travel_on[one.batch.row.mb]
            travel_on |= {batch.row.mb: batch for batch in job.window.part(one.batch, one.rows)}
        self._put_up(parted)
        return [batch for batch in travel_on.values() if batch.row.kind != "solo"]

    def let_travel(self, *, now_s: float) -> None:
        """Hint as many suspects as may travel now; what is poison gets its result and travels no more."""
        job = self._job
        solos = job.window.solos
        waiting = {mb: batch for mb, batch in solos.items() if batch.hint is None and batch.hold is None}
        turns = free_turns(len(solos) - len(waiting), workers=len(job.fleet.workers)) if waiting else 0
        if not turns:
            return
        able = {mb: batch.row.seqs[0] for mb, batch in waiting.items() if now_s >= batch.quiet_until_s}
        losses = job.journal.losses(able.values())
        by_mb = {mb: losses[seq] for mb, seq in able.items()}
        poison = {mb for mb, own in by_mb.items() if judge(own) is Standing.POISON}
        turn = next_in_turn({mb: own for mb, own in by_mb.items() if mb not in poison}, turns)
        job.hints.send([waiting[mb] for mb in turn], route=job.route, now_s=now_s, reason="suspect")
        for mb in poison:
            reason = explain(by_mb[mb])
            log.error(Event.POISON_FOUND, job=job.id, mb=mb, seq=able[mb], reason=reason)
            results = give_up(job, waiting[mb], {able[mb]: reason}, kind=ErrorKind.WORKER_LOST)
            metrics.POISON.inc()
            self._receiver.settle(results, [])

    def _add_loss(self, hold: LostHold) -> None:
        """A loss of each request that was unfinished; what had been published is not blamed."""
        batch, seen, _ = hold
        cause = cause_of_loss(hold.cause, solo=batch.row.kind == "solo", armed=seen.armed)
        seqs = batch.missing_seqs(besides=seen.got)
        self._job.journal.add_loss(batch.row.mb, seqs, token=seen.token or "", armed=seen.armed, cause=cause)

    def _part(self, batches: Iterable[OpenMicroBatch]) -> Iterable[Parted]:
        """Note new micro-batches for each of `batches` with suspects in it: one for each of those, one for the rest."""
        job = self._job
        for batch in batches:
            seqs = batch.missing_seqs()
            rest, alone = part(seqs, job.journal.losses(seqs))
            if batch.row.kind == "solo" or not alone:
                continue
            job.payloads.pack_again(batch.row, job.journal)  # raises where the input says something else by now
            made = [self._make(batch, rest, kind="normal", number=1)] if rest else []
            made += [
                self._make(batch, [seq], kind="solo", number=number) for number, seq in enumerate(alone, len(made) + 1)
            ]
            rows, offers = [row for row, _ in made], [offer for _, offer in made]
            job.journal.add_micro_batches(rows)
            job.journal.close_micro_batches([batch.row.mb])
            yield Parted(batch, rows, offers, len(alone))

    def _make(
        self, old: OpenMicroBatch, seqs: list[int], *, kind: Literal["normal", "solo"], number: int
    ) -> tuple[MicroBatchRow, Offer]:
        """The `number`-th new micro-batch, over `seqs` of `old`; fed and lost as often as that one."""
        job, row = self._job, old.row
        mb, deliveries = job.journal.mb_high + number, old.deliveries + 1
        lines = job.payloads.read_again(seqs, job.journal, model=row.model)
        requests = [request_of(seq, row.round, line) for seq, line in zip(seqs, lines, strict=True)]
        packed = job.payloads.pack(mb, requests, model=row.model, fed_at=row.fed_at, kind=kind)
        made = MicroBatchRow(
            *(mb, row.round, row.model, kind, tuple(seqs), packed.digest, len(packed.z), row.fed_at, deliveries, 0)
        )
        return made, Offer(mb, len(seqs), 0, packed.z, deliveries + 1, kind)

    def _put_up(self, parted: list[Parted]) -> None:
        """In Redis: away with the old, up with the new. What is left undone, the next look does."""
        if not parted:
            return
        job = self._job
        for one in parted:
            log.warning(Event.SUSPECTS_FOUND, job=job.id, mb=one.batch.row.mb, suspects=one.suspects)
        if "FENCED" in job.claims.close(job.id, [one.batch.row.mb for one in parted], epoch=job.journal.epoch):
            raise FencedError
        put_up(job, [offer for one in parted for offer in one.offers])
