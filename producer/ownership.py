"""Taking a job in Redis: under a new epoch at a collector's start, under the same one when Redis was emptied.

Redis is a cache of the journal; here it is filled from it. A micro-batch that was fed is offered again, without those
requests that have results, and not hinted for a while, so that a live worker that still runs it can claim it in place.
"""

import time
from collections.abc import Iterable, Sequence

import orjson
import redis

from common.claim_types import Offer, OfferAnswer
from common.claims import Claims
from common.errors import RefusedError
from common.log import Event, get_logger
from common.wire import WIRE_VERSION, JobInfo
from producer.job import FencedError, Job
from producer.steering import IN_REDIS, Course
from producer.window import OpenMicroBatch

QUIET_SHARE = 0.5
"""No hint for this share of `expire_s` (10 s) after offering again: live workers ask every 3 s for what they held."""
_AT_ONCE = 16
"""Payloads built before they are sent: what is held in memory, each at most a micro-batch."""

log = get_logger(__name__)


def take(job: Job) -> None:
    """Own the job under a new epoch, and offer all that is open. Safe to repeat after a lost connection.

    Raises `RefusedError` when Redis knows a newer journal of this job: this one is an old copy, and nothing is changed.
    """
    known = job.claims.look(job.id)
    check_owner(job, epoch=known.epoch or 0, manifest=known.fields.get("manifest", ""))
    job.journal.prepare()
    _own(job, epoch=job.journal.owner_epoch, state="rebuilding")
    # A crash here leaves Redis one epoch ahead of the journal: the next start asks for that same epoch, as same owner.
    job.journal.take()
    rebuild(job)


def take_without_redis(job: Job) -> None:
    """Own the job under a new epoch of which Redis does not know: it is gone for good."""
    job.journal.prepare()
    job.journal.take()


def check_owner(job: Job, *, epoch: int, manifest: str) -> None:
    """Raises `RefusedError` when Redis has this journal's epoch, or its next one, from another copy of the journal."""
    journal = job.journal
    ours = journal.owner if epoch == journal.owner_epoch else None
    if epoch in (journal.epoch, journal.epoch + 1) and epoch and ours != _owner_of(manifest):
        raise _old_copy(job)


def rebuild(job: Job) -> None:
    """Bring Redis to what the journal says, under this collector's epoch.

    The epoch in Redis is never obeyed, only set. Raises `StoppedError` when the journal has a newer collector's.
    """
    epoch = job.journal.epoch
    job.journal.check_epoch()
    _own(job, epoch=epoch, state="rebuilding")
    if job.journal.course.state != "cancelling":
        offer_again(job, job.window.open.values())
    say_course(job.claims, job.id, epoch=epoch, course=job.journal.course)
    log.info(Event.JOB_REBUILT, job=job.id, epoch=epoch, micro_batches=len(job.window.open))


def say_course(claims: Claims, job: str, *, epoch: int, course: Course, known: str | None = None) -> None:
    """Tell Redis the job's state as the journal has it, why, and which wishes were heard. Raises `FencedError`.

    `known`: the state that Redis has; it stays where it says the same.
    """
    allowed = IN_REDIS[course.state]
    fields = {"heard": " ".join(course.steering.heard), "reason": course.steering.reason}
    if not claims.amend(job, epoch=epoch, state=None if known in allowed else allowed[0], fields=fields):
        raise FencedError


def offer_again(job: Job, batches: Iterable[OpenMicroBatch]) -> None:
    """Offer micro-batches fed earlier, until Redis is full; the rest is for the next look. Raises `FencedError`."""
    waiting = list(batches)
    for start in range(0, len(waiting), _AT_ONCE):
        some = waiting[start : start + _AT_ONCE]
        answers = put_up(job, [_offer(job, batch) for batch in some])
        now_s = time.monotonic()
        if not answers:
            return
        for batch, answer in zip(some, answers, strict=True):
            if answer == "NEW":
                batch.hint = batch.hold = batch.doubt = None
                batch.claimed = False
                batch.quiet_until_s = now_s + QUIET_SHARE * job.settings.expire_s


def put_up(job: Job, offers: Sequence[Offer]) -> Sequence[OfferAnswer]:
    """Offer; no answers when Redis is full (some of `offers` may then stand). Raises `FencedError`."""
    try:
        answers = job.claims.offer(job.id, offers, epoch=job.journal.epoch)
    except redis.OutOfMemoryError:
        job.full = True
        return ()
    if "FENCED" in answers:
        raise FencedError
    return answers


def _offer(job: Job, batch: OpenMicroBatch) -> Offer:
    row = batch.row
    packed = job.payloads.pack_again(row, job.journal)
    return Offer(row.mb, len(row.seqs), batch.got, packed.z, batch.deliveries + 1, row.kind)


def _own(job: Job, *, epoch: int, state: str) -> None:
    owned = job.claims.own(
        job.id,
        epoch=epoch,
        state=state,
        mb_high=job.journal.mb_high,
        digests=job.journal.digests,
        manifest=manifest_of(job),
        mixed=job.spec.mixed,
    )
    if not owned:
        raise _old_copy(job)


def _old_copy(job: Job) -> RefusedError:
    job.journal.check_unmoved()  # else it is not old, only overtaken by another collector meanwhile
    return RefusedError(
        "Redis knows a newer journal of this job: this directory is an old copy",
        where=str(job.directory.path),
        do="continue the job in its newest directory",
    )


def _owner_of(manifest: str) -> str | None:
    try:
        return str(orjson.loads(manifest)["owner"])
    except (ValueError, KeyError, TypeError):
        return None


def manifest_of(job: Job) -> str:
    """What any host may know of the job, as JSON (`common.wire.JobInfo`), and which copy of the journal says so."""
    spec = job.spec
    info = JobInfo(
        v=WIRE_VERSION,
        job=spec.job,
        host=spec.host,
        directory=str(job.directory.path),
        input=spec.input,
        output=str(job.directory.output_path),
        model=spec.model,
        priority=spec.priority,
        created_at=spec.created_at,
        tags=spec.tags,
    )
    return orjson.dumps({**info.model_dump(), "owner": job.journal.owner}).decode()
