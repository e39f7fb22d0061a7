"""The window: micro-batches that are fed and lack results, counted as the journal has them. What it bounds is fed next.

Pure and in memory; it is filled from the journal at a collector's start and follows each commit. Its size bounds queue,
payloads and stream in Redis together, whatever the job's size.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from common.wire import Result
from producer.journal_reader import MicroBatchRow

FIRST_RESULT_BYTES = 4096
"""Expected size of a result in Redis until the first ones have been seen."""
_MEMORY = 0.98
"""Weight of what was seen before in the running mean of result sizes: the last 50 entries count."""
FLEETS = 4
"""The window holds so many times what the fleet runs at once."""


class Hint(NamedTuple):
    """When, where and how urgently a micro-batch was last hinted; `at_s` is monotonic."""

    at_s: float
    queue: str
    priority: int


class Hold(NamedTuple):
    """A hold as it was first seen; `since_s` is monotonic."""

    token: str
    beat: int
    since_s: float


class Doubt(NamedTuple):
    """Positions that a look saw published and the journal lacks, and how often the stream had been seen empty then."""

    mask: int
    empties: int


@dataclass(slots=True)
class OpenMicroBatch:
    """One micro-batch on its way."""

    row: MicroBatchRow
    got: int = 0
    """Mask of the positions that have a result in the journal."""
    deliveries: int = 0
    """Holds lost so far."""
    repairs: int = 0
    hint: Hint | None = None
    claimed: bool = False
    """Whether a worker has come to it, as far as is known."""
    quiet_until_s: float = 0.0
    """No hint before this moment (monotonic): a live worker may claim it in place."""
    hold: Hold | None = None
    doubt: Doubt | None = None

    @property
    def missing(self) -> int:
        """Requests without a result."""
        return len(self.row.seqs) - self.got.bit_count()

    @property
    def goes_first(self) -> bool:
        """Whether it was lost before, or holds a suspect: at the tail it would wait behind the whole queue."""
        return self.deliveries > 0 or self.repairs > 0 or self.row.kind == "solo"

    def missing_seqs(self, *, besides: int = 0) -> list[int]:
        """The seqs without a result, those at the positions in the mask `besides` left out."""
        done = self.got | besides
        return [seq for i, seq in enumerate(self.row.seqs) if not done >> i & 1]


class Limits(NamedTuple):
    """What one job may have outstanding."""

    requests: int
    bytes: int


def limits_for(
    *, window_requests: int, window_bytes: int, capacity: int, live_jobs: int, max_concurrency: int | None
) -> Limits:
    """One job's equal share of the window among `live_jobs` (itself included), on a fleet of `capacity` places."""
    jobs = max(1, live_jobs)
    requests = max(1, max(window_requests, FLEETS * capacity) // jobs)
    return Limits(min(requests, max_concurrency or requests), max(1, window_bytes // jobs))


@dataclass
class Window:
    """All open micro-batches of one job, by number."""

    open: dict[int, OpenMicroBatch] = field(default_factory=dict)
    requests: int = 0
    """Fed and without a result."""
    payload_bytes: int = 0
    result_bytes: float = FIRST_RESULT_BYTES
    """Mean size of a result in Redis."""
    claimed_s: dict[tuple[str, int], float] = field(default_factory=dict)
    """(queue, priority) -> when the newest hint was sent whose micro-batch is known to be claimed; monotonic."""
    solos: dict[int, OpenMicroBatch] = field(default_factory=dict)
    """Those of `open` that hold one suspect."""
    _where: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    """(seq, round) -> micro-batch and position. A request without a result travels in one open micro-batch only."""

    @property
    def bytes(self) -> int:
        """Payloads in Redis and results expected there."""
        return self.payload_bytes + int(self.requests * self.result_bytes)

    @property
    def has_unclaimed(self) -> bool:
        """Whether a worker could take more, as far as is known."""
        return any(not batch.claimed for batch in reversed(self.open.values()))

    def add(self, row: MicroBatchRow, *, got: int = 0) -> OpenMicroBatch:
        """Take in a micro-batch that the journal has noted."""
        batch = OpenMicroBatch(row, got, row.deliveries, row.repairs)
        self.open[row.mb] = batch
        if row.kind == "solo":
            self.solos[row.mb] = batch
        self.requests += batch.missing
        self.payload_bytes += row.payload_bytes
        for position, seq in enumerate(row.seqs):
            if not got >> position & 1:
                self._where[seq, row.round] = row.mb, position
        return batch

    def settle(self, results: Iterable[Result]) -> list[int]:
        """Note results that the journal is taking in for the first time; returns the micro-batches they complete."""
        complete: list[int] = []
        for result in results:
            where = self._where.pop((result.seq, result.round), None)
            if where is None:
                continue
            mb, position = where
            batch = self.open[mb]
            batch.got |= 1 << position
            self.requests -= 1
            if not batch.claimed:
                self.note_claim(batch)
            if not batch.missing:
                complete.append(mb)
        return complete

    def note_claim(self, batch: OpenMicroBatch) -> None:
        """Note that a worker has come to `batch`, so that older hints which none has come to are known as lost."""
        batch.claimed = True
        if batch.hint is not None:
            where = batch.hint.queue, batch.hint.priority
            self.claimed_s[where] = max(batch.hint.at_s, self.claimed_s.get(where, 0.0))

    def oldest_hint_s(self, *, now_s: float) -> float:
        """Seconds since the oldest hint that no worker has come to, as far as is known; 0 where none waits."""
        hinted = (batch.hint.at_s for batch in self.open.values() if batch.hint is not None and not batch.claimed)
        return max(0.0, now_s - min(hinted, default=now_s))

    def remove(self, mbs: Iterable[int]) -> None:
        """Forget micro-batches that are complete, or parted."""
        for mb in mbs:
            self.payload_bytes -= self.open.pop(mb).row.payload_bytes
            self.solos.pop(mb, None)

    def part(self, batch: OpenMicroBatch, rows: Iterable[MicroBatchRow]) -> list[OpenMicroBatch]:
        """Let the requests that `batch` lacks travel on in `rows`, which hold all of them."""
        self.requests -= batch.missing
        self.remove([batch.row.mb])
        return [self.add(row) for row in rows]

    def note_size(self, entry_bytes: int, results: int) -> None:
        """Learn how large results are in Redis."""
        if results:
            self.result_bytes = _MEMORY * self.result_bytes + (1 - _MEMORY) * entry_bytes / results

    def room(self, limits: Limits) -> Limits:
        """What may still be fed; not below 0."""
        return Limits(max(0, limits.requests - self.requests), max(0, limits.bytes - self.bytes))
