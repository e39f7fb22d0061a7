"""One micro-batch in this worker's hands: its results, which of them Redis has, and whether it is still ours.

Filled by the runner in the engine's loop, emptied by `keeper`. Kept by token: a doubled hint cannot touch it.
"""

import threading
from collections.abc import Callable

from common.claim_types import Publication
from common.wire import ENTRY_BYTES, MicroBatch, Result, pack_results
from worker.tracing import SILENT, Trace


class Hold:
    """What one claim gave, from the claim until it is full, released or lost. Masks: bit i is position i."""

    def __init__(
        self,
        batch: MicroBatch,
        *,
        token: str,
        got: int,
        model: str,
        abandon: Callable[[int], None],
        is_stuck: Callable[[], bool],
        trace: Trace = SILENT,
    ) -> None:
        """`model`: the name it was claimed for. `abandon`: stops the requests of a mask, from any thread."""
        self.job, self.mb, self.kind = batch.job, batch.mb, batch.kind
        self.token = token
        self.model = model
        self.whole = (1 << len(batch.requests)) - 1
        self.sent = got
        """Positions of which Redis has a result, whoever brought it."""
        self.results: dict[int, Result] = {}
        """Kept until Redis has all of them: a flush of Redis, or a cut tail of its log, asks for them again."""
        self.counted = 0
        """Positions whose results are in the metrics."""
        self.full = False
        self.lost = False
        self.orphaned_at: float | None = None
        """Since when Redis does not know of this hold; monotonic seconds."""
        self.next_reclaim_at = 0.0
        self.lock = threading.Lock()
        """Held while what to publish is chosen and published, so that no two threads publish the same."""
        self.is_stuck = is_stuck
        self.trace = trace
        self._abandon = abandon
        self._abandoned = 0

    def add(self, position: int, result: Result) -> None:
        """One request is finished."""
        self.results[position] = result

    @property
    def is_over(self) -> bool:
        """Nothing of it is left to do here."""
        return self.full or self.lost or self.sent == self.whole

    @property
    def is_wanted(self) -> bool:
        """Whether anything of it is still to be run here."""
        return not self.is_over and self._abandoned != self.whole

    def unsent(self) -> list[int]:
        """Positions of finished results that Redis does not have."""
        return [position for position in list(self.results) if not self.sent >> position & 1]

    def publications(self) -> list[Publication]:
        """What is to be published, each entry at most 1 MiB before it is compressed, one larger result excepted."""
        made: list[Publication] = []
        chunk: list[int] = []
        size = 0
        for position in self.unsent():
            length = len(self.results[position].line)
            if chunk and size + length > ENTRY_BYTES:
                made.append(self._publication(chunk))
                chunk, size = [], 0
            chunk.append(position)
            size += length
        if chunk:
            made.append(self._publication(chunk))
        return made

    def abandon(self, mask: int) -> None:
        """Stop those of `mask` that still run: their results are not wanted here any more."""
        fresh = mask & ~self._abandoned
        if fresh:
            self._abandoned |= fresh
            self._abandon(fresh)

    def hear(self, got: int) -> None:
        """What Redis says it has: stop what others brought; what it has forgotten is unsent again."""
        self.sent = got
        answered = sum(1 << position for position in list(self.results))
        self.abandon(got & ~answered)

    def _publication(self, positions: list[int]) -> Publication:
        mask = sum(1 << position for position in positions)
        return Publication(self.mb, self.token, mask, pack_results([self.results[p] for p in positions]))
