"""The feeder: input lines -> journal rows, then offers, as far as the window has room; `pacing` hints them.

In this order. A crash before the commit: nothing happened, the lines are read again. After the commit, before the
offer: open in the journal and absent in Redis, so the next collector, or the next look, offers it. After the offer,
before the hint: the next collector finds it ready and hints it.
"""

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from common.claim_types import Offer
from common.log import Event, get_logger
from common.wire import Result
from producer.again import Again
from producer.batch_growth import BatchGrowth
from producer.intake import Intake, Position, Taken, row_of
from producer.job import Job
from producer.journal import RequestRow
from producer.journal_reader import MicroBatchRow
from producer.look_ahead import LookAhead
from producer.ownership import put_up
from producer.planner import Planner, size_for
from producer.reader import InputLine
from producer.rejections import rejected_result
from producer.window import Limits

STEP_ROWS = 1024
STEP_BYTES = 16 * 1024 * 1024
"""At most so much is read between two commits: what is held in memory, and how long results wait meanwhile."""

log = get_logger(__name__)


class _Waiting(NamedTuple):
    """A line read and not yet in a micro-batch."""

    at: Position
    since_s: float


@dataclass
class _Draft:
    """What the next commit feeds."""

    requests: list[RequestRow] = field(default_factory=list)
    rejected: list[Result] = field(default_factory=list)
    batches: list[MicroBatchRow] = field(default_factory=list)
    offers: list[Offer] = field(default_factory=list)
    lines: int = 0
    read_bytes: int = 0
    fed: int = 0
    fed_bytes: int = 0

    @property
    def has_room(self) -> bool:
        """Whether more may be read for it."""
        return self.lines < STEP_ROWS and self.read_bytes < STEP_BYTES


class Feeder:
    """Feeds what a job's intake reads."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._intake = Again(job) if job.journal.round else Intake(job)
        spec = job.spec
        self._ahead = LookAhead(spec.order, job.estimates)
        self._planner = Planner(size=spec.batch_size, tokens=spec.batch_tokens, by_endpoint=spec.order != "input")
        self._growth = BatchGrowth(spec.batch_size, most=spec.batch_growth)
        self._ready: deque[list[InputLine]] = deque()
        self._ready_rows = 0
        self._waiting: dict[int, _Waiting] = {}
        """By their physical line."""
        self._can_feed = False
        self.done = False
        """Whether the whole input is fed."""

    def close(self) -> None:
        """Close the input."""
        self._intake.close()

    def feed(self, limits: Limits, *, capacity: int) -> int:
        """Feed one step's worth at most within `limits`, for a fleet that runs `capacity` requests at once.

        Returns how many lines were recalled, read or fed, 0 when there is no room. Raises `FencedError`;
        `redis.RedisError`: what is journaled by then is offered later.
        """
        self._intake.look()
        self._grow()
        if not self.done and (recalled := self._intake.recall()):
            return recalled
        window = self._job.window
        room = window.room(limits)
        room = room._replace(bytes=min(room.bytes, max(0, self._job.headroom_bytes)))
        blocked = room.requests < 1 or (room.bytes < 1 and window.open)
        judgeable = self._job.models.known or not self._intake.has_bytes()  # an empty file needs no worker
        self._can_feed = judgeable and not blocked
        if self.done or not self._can_feed:
            return 0
        draft = _Draft()
        if not self._ready:
            self._read(draft, rows=min(STEP_ROWS, room.requests), capacity=capacity, most=limits.requests)
        self._choose(draft, room)
        self.done = self._intake.exhausted and not self._waiting
        if draft.requests or self.done:
            self._commit(draft)
            for row in draft.batches:
                window.add(row)
            self._job.headroom_bytes -= draft.fed_bytes
            put_up(self._job, draft.offers)
        return max(draft.lines, draft.fed)

    def surrender(self) -> tuple[Intake | Again, list[Taken]]:
        """The intake, and the lines read from it that wait for a micro-batch: this feeder feeds no more."""
        self._intake.end_here()
        lines = [line for lines in self._ready for line in lines]
        lines += [line for lines in self._planner.flush() for line in lines]
        lines += self._ahead.let_go(places=None)
        self._ready.clear()
        self.done = True
        return self._intake, [Taken(self._waiting.pop(line.line).at.seq, line) for line in lines]

    def waits_for(self) -> str | None:
        """What it recalls before it feeds; or the lines it waits for, where all that were there have their results."""
        recalling = None if self.done else self._intake.recalling()
        if recalling is not None:
            return recalling
        awaited = self._intake.awaited
        return None if self._is_busy or awaited is None else awaited.waits_for()

    @property
    def is_idle(self) -> bool:
        """Whether it waits for lines alone, and they may come at any time."""
        awaited = self._intake.awaited
        return not self._is_busy and awaited is not None and awaited.is_written

    @property
    def lingers(self) -> bool:
        """Whether it has fed nothing, and will soon: lines gather for a micro-batch, or the input is being written."""
        is_gathering = bool(self._waiting) and not self._ready and self._intake.grows
        awaited = self._intake.awaited
        can_feed = self._can_feed and not self.done and not self._job.full
        return can_feed and (is_gathering or (awaited is not None and awaited.will_end))

    @property
    def _is_busy(self) -> bool:
        return self.done or bool(self._waiting or self._job.window.open)

    @property
    def grows(self) -> bool:
        """Whether nobody knows how much is still to come."""
        return self._intake.grows

    def unfed(self) -> int:
        """Requests still to be fed; those not read yet are estimated."""
        return self._intake.unread() + len(self._waiting)

    def _read(self, draft: _Draft, *, rows: int, capacity: int, most: int) -> None:
        """Read until `rows` requests wait, a step is full or the input ends; full micro-batches get ready."""
        rows, ahead = self._ahead.rows(rows, most=most), self._ahead
        self._planner.size = self._size(capacity, most=most)
        while len(self._waiting) < rows and not ahead.is_full(rows) and draft.has_room:
            read = self._intake.read()
            if read is None:
                break
            size_bytes, taken = read
            draft.lines += 1
            draft.read_bytes += size_bytes
            if taken is not None:
                self._plan(self._take(taken, draft), capacity=capacity, most=most)
        exhausted = self._intake.exhausted
        if exhausted or ahead.is_full(rows) or (self._is_old() and len(self._waiting) <= rows):
            self._plan(ahead.let_go(places=capacity if exhausted else None), capacity=capacity, most=most)
            self._get_ready(self._planner.flush(), capacity=capacity, most=most)

    def _plan(self, lines: Iterable[InputLine], *, capacity: int, most: int) -> None:
        """Give lines to the planner; full micro-batches get ready."""
        for line in lines:
            self._get_ready(self._planner.add(line), capacity=capacity, most=most)

    def _get_ready(self, batches: Iterable[list[InputLine]], *, capacity: int, most: int) -> None:
        for batch in batches:
            self._ready.append(batch)
            self._ready_rows += len(batch)
            self._planner.size = self._size(capacity, most=most)

    def _size(self, capacity: int, *, most: int) -> int:
        """Requests a micro-batch, at most `most`: smaller when little is left behind it, as far as that is known.

        Hints are taken in their order: what no worker holds when one is taken is what was not ready when it was cut.
        """
        wanted = int(self._job.spec.batch_size * self._growth.factor)
        if self._intake.grows:
            return min(most, wanted)
        behind = self.unfed() - self._ready_rows
        return min(most, size_for(behind, capacity, wanted, workers=len(self._job.fleet.workers)))

    def _grow(self) -> None:
        workers = len(self._job.fleet.workers)
        self._growth.look(done=self._job.journal.counts.done, workers=workers, now_s=time.monotonic())
        self._planner.tokens = int(self._job.spec.batch_tokens * self._growth.factor)

    def _choose(self, draft: _Draft, room: Limits) -> None:
        """Put what is ready into `draft`, as far as there is room; one always fits into an empty window."""
        window = self._job.window
        while self._ready:
            lines = self._ready[0]
            fits = draft.fed + len(lines) <= room.requests and draft.fed_bytes < room.bytes
            if not fits and (window.open or draft.fed):
                return
            self._ready_rows -= len(lines)
            self._pack(self._ready.popleft(), draft)
            draft.fed_bytes += len(draft.offers[-1].z) + int(len(lines) * window.result_bytes)

    def _is_old(self) -> bool:
        """Whether the oldest waiting line has lingered long enough to go in a part-filled micro-batch."""
        oldest = next(iter(self._waiting.values()), None)
        return oldest is not None and time.monotonic() - oldest.since_s >= self._job.spec.batch_timeout_s

    def _take(self, taken: Taken, draft: _Draft) -> list[InputLine]:
        """Settle one line, or let it wait for a micro-batch; returns those that are to be planned now."""
        seq, line = taken
        if isinstance(line, InputLine):
            self._waiting[line.line] = _Waiting(Position(line.offset, line.line, seq), time.monotonic())
            return self._ahead.add(line, seq=seq)
        draft.requests.append(row_of(taken))
        text = rejected_result(self._job.id, seq, line)
        round_ = self._job.journal.round
        draft.rejected.append(Result(seq, round_, line.kind.status, line.kind.value, 0, 0, 0, text))
        return []

    def _pack(self, lines: list[InputLine], draft: _Draft) -> None:
        seqs = tuple(self._waiting.pop(line.line).at.seq for line in lines)
        draft.requests += [row_of(Taken(seq, line)) for seq, line in zip(seqs, lines, strict=True)]
        journal, fed_at, model = self._job.journal, time.time(), lines[0].model
        mb, round_ = journal.mb_high + len(draft.batches) + 1, journal.round
        packed = self._job.payloads.pack_lines(mb, seqs, lines, round_=round_, fed_at=fed_at)
        row = MicroBatchRow(mb, round_, model, "normal", seqs, packed.digest, len(packed.z), fed_at, 0, 0)
        draft.batches.append(row)
        draft.offers.append(Offer(mb, len(seqs), 0, packed.z, 1, "normal"))
        draft.fed += len(seqs)

    def _commit(self, draft: _Draft) -> None:
        journal = self._job.journal
        with journal.writing():
            self._intake.note(draft.requests, waiting=self._first_waiting())
            journal.add_micro_batches(draft.batches)
            journal.add_results(draft.rejected)
        self._intake.settled(draft.requests)
        if self.done:
            log.info(Event.INPUT_READ, job=self._job.id, requests=journal.counts.total, blank=journal.counts.blank)

    def _first_waiting(self) -> Position | None:
        """The earliest line that waits for a micro-batch: lines before it are settled."""
        return next((waiting.at for waiting in self._waiting.values()), None)
