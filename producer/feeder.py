"""The feeder: input lines -> journal rows, then offers, then hints, as far as the window has room.

In this order. A crash before the commit: nothing happened, the lines are read again. After the commit, before the
offer: open in the journal and absent in Redis, so the next collector, or the next look, offers it. After the offer,
before the hint: ready and unclaimed, so the janitor hints.
"""

import os
import time
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from common.claim_types import Offer
from common.errors import ErrorKind
from common.log import Event, get_logger
from common.wire import Result
from producer.job import Job
from producer.journal import RequestRow
from producer.journal_reader import MicroBatchRow
from producer.ownership import put_up
from producer.planner import Planner, size_for
from producer.reader import BlankLine, InputLine, RejectedLine, read_lines
from producer.rejections import rejected_result
from producer.window import Limits, OpenMicroBatch

_SAMPLE_BYTES = 64 * 1024
STEP_ROWS = 1024
STEP_BYTES = 16 * 1024 * 1024
"""At most so much is read between two commits: what is held in memory, and how long results wait meanwhile."""

log = get_logger(__name__)


class _Waiting(NamedTuple):
    """A line read and not yet in a micro-batch."""

    seq: int
    offset: int
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


class Feeder:
    """Reads a job's input once, from where the journal says that reading goes on."""

    def __init__(self, job: Job) -> None:
        self._job = job
        start = job.journal.checkpoint()
        self._offset, self._line, self._seq = start.input_offset, start.input_line, start.input_seq
        self._known_below = job.journal.next_seq()
        self._planner = Planner(size=job.spec.batch_size, tokens=job.spec.batch_tokens)
        self._ready: deque[list[InputLine]] = deque()
        self._waiting: dict[int, _Waiting] = {}
        self._waiting_ids: set[bytes] = set()
        self._input = job.directory.open_input()
        self._sample = _sample_lines(self._input.fileno())
        self._input.seek(self._offset)
        self._lines = read_lines(
            self._input,
            offset=self._offset,
            line=self._line,
            choose_model=job.models.choose,
            include_request=job.spec.include_request,
            max_line_bytes=job.spec.max_line_bytes,
        )
        self._exhausted = False
        self.done = False
        """Whether the whole input is fed."""

    def close(self) -> None:
        """Close the input."""
        self._input.close()

    def feed(self, limits: Limits, *, capacity: int) -> int:
        """Feed one step's worth at most within `limits`, for a fleet that runs `capacity` requests at once.

        Returns how many lines were read or fed, 0 when there is no room. Raises `FencedError`; `redis.RedisError`: what
        is journaled by then is offered or hinted later.
        """
        window = self._job.window
        room = window.room(limits)
        blocked = room.requests < 1 or (room.bytes < 1 and window.open)
        judgeable = self._job.models.known or not self._input_bytes()  # an empty file needs no worker
        if self.done or blocked or not judgeable:
            return 0
        draft = _Draft()
        if not self._ready:
            self._read(draft, rows=min(STEP_ROWS, room.requests), capacity=capacity, most=limits.requests)
        self._choose(draft, room)
        self.done = self._exhausted and not self._ready
        if draft.requests or self.done:
            self._commit(draft)
            self._offer(draft, [window.add(row) for row in draft.batches])
        return max(draft.lines, draft.fed)

    def unfed(self) -> int:
        """Requests still to be fed; those not read yet are estimated from their bytes."""
        lines, read_bytes = (self._line - 1, self._offset) if self._offset else self._sample
        left_bytes = self._input_bytes() - self._offset
        return -(-left_bytes * lines // max(1, read_bytes)) + len(self._waiting)

    def _read(self, draft: _Draft, *, rows: int, capacity: int, most: int) -> None:
        """Read until `rows` requests wait, a step is full or the input ends; full micro-batches get ready."""
        self._planner.size = min(most, self._size(capacity))
        while len(self._waiting) < rows and draft.lines < STEP_ROWS and draft.read_bytes < STEP_BYTES:
            item = next(self._lines, None)
            if item is None:
                self._ready += self._planner.flush()
                self._exhausted = True
                return
            if full := self._take(item, draft):
                self._ready += full
                self._planner.size = min(most, self._size(capacity))
        if self._is_old() and len(self._waiting) <= rows:
            self._ready += self._planner.flush()

    def _size(self, capacity: int) -> int:
        """Requests a micro-batch: smaller when little is left for the fleet."""
        return size_for(self.unfed(), capacity, self._job.spec.batch_size)

    def _input_bytes(self) -> int:
        return os.fstat(self._input.fileno()).st_size

    def _choose(self, draft: _Draft, room: Limits) -> None:
        """Put what is ready into `draft`, as far as there is room; one always fits into an empty window."""
        window = self._job.window
        while self._ready:
            lines = self._ready[0]
            fits = draft.fed + len(lines) <= room.requests and draft.fed_bytes < room.bytes
            if not fits and (window.open or draft.fed):
                return
            self._pack(self._ready.popleft(), draft)
            draft.fed_bytes += len(draft.offers[-1].z) + int(len(lines) * window.result_bytes)

    def _is_old(self) -> bool:
        """Whether the oldest waiting line has lingered long enough to go in a part-filled micro-batch."""
        oldest = next(iter(self._waiting.values()), None)
        return oldest is not None and time.monotonic() - oldest.since_s >= self._job.spec.batch_timeout_s

    def _take(self, item: InputLine | RejectedLine | BlankLine, draft: _Draft) -> list[list[InputLine]]:
        """Settle one line, or let it wait for a micro-batch; returns those that are full by it."""
        self._offset, self._line = item.offset + item.length, item.line + 1
        draft.lines += 1
        draft.read_bytes += item.length
        if isinstance(item, BlankLine):
            return []
        seq, self._seq = self._seq, self._seq + 1
        if seq < self._known_below and self._job.journal.has_request(seq):
            return []
        first = item.id_hash is not None and self._is_first(item.id_hash)
        if isinstance(item, InputLine) and first:
            self._waiting[item.line] = _Waiting(seq, item.offset, time.monotonic())
            return self._planner.add(item)
        rejected = _duplicate(item) if isinstance(item, InputLine) else item
        row = RequestRow(seq, item.line, item.offset, item.length, item.id_hash if first else None)
        draft.requests.append(row)
        line = rejected_result(self._job.id, seq, rejected)
        draft.rejected.append(Result(seq, 0, rejected.kind.status, rejected.kind.value, 0, 0, 0, line))
        return []

    def _is_first(self, id_hash: bytes) -> bool:
        """Whether no earlier line has this custom_id; it is taken from now on."""
        if id_hash in self._waiting_ids or self._job.journal.has_id(id_hash):
            return False
        self._waiting_ids.add(id_hash)
        return True

    def _pack(self, lines: list[InputLine], draft: _Draft) -> None:
        seqs = tuple(self._waiting.pop(line.line).seq for line in lines)
        draft.requests += [
            RequestRow(seq, line.line, line.offset, line.length, line.id_hash)
            for seq, line in zip(seqs, lines, strict=True)
        ]
        mb, fed_at, model = self._job.journal.mb_high + len(draft.batches) + 1, time.time(), lines[0].model
        packed = self._job.payloads.pack_lines(mb, seqs, lines, fed_at=fed_at)
        draft.batches.append(MicroBatchRow(mb, 0, model, "normal", seqs, packed.digest, len(packed.z), fed_at, 0, 0))
        draft.offers.append(Offer(mb, len(seqs), 0, packed.z, 1, "normal"))
        draft.fed += len(seqs)

    def _commit(self, draft: _Draft) -> None:
        journal = self._job.journal
        with journal.writing():
            journal.add_requests(draft.requests)
            journal.add_micro_batches(draft.batches)
            journal.add_results(draft.rejected)
            journal.set_position(**self._resume_position())
            journal.counts.blank = self._line - 1 - self._seq
            if self._exhausted:
                journal.counts.total = self._seq
        self._waiting_ids.difference_update(row.id_hash for row in draft.requests if row.id_hash)
        if self.done:
            log.info(Event.INPUT_READ, job=self._job.id, requests=self._seq, blank=journal.counts.blank)

    def _resume_position(self) -> dict[str, int]:
        """The earliest line that waits for a micro-batch, else the next one to read: lines before it are settled."""
        for line, waiting in self._waiting.items():
            return {"offset": waiting.offset, "line": line, "seq": waiting.seq}
        return {"offset": self._offset, "line": self._line, "seq": self._seq}

    def _offer(self, draft: _Draft, opened: list[OpenMicroBatch]) -> None:
        if not opened:
            return
        job = self._job
        if put_up(job, draft.offers):
            job.hints.send(opened, route=job.route, now_s=time.monotonic(), reason="new")


def _duplicate(item: InputLine) -> RejectedLine:
    return RejectedLine(
        item.line,
        item.offset,
        item.length,
        item.custom_id,
        ErrorKind.DUPLICATE_CUSTOM_ID,
        "an earlier line has this custom_id; the first use runs",
        item.original,
        item.id_hash,
    )


def _sample_lines(descriptor: int) -> tuple[int, int]:
    """(lines, bytes) of the input's first 64 KiB: what tells how many there are, before the first one is read."""
    head = os.pread(descriptor, _SAMPLE_BYTES, 0)
    return head.count(b"\n") + (not head.endswith(b"\n")), len(head)
