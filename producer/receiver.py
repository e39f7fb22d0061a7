"""The receiver: entries of the results stream -> journal -> deleted in Redis -> ordered file. The heart of the promise.

Settling goes in this fixed order, and a crash between any two steps costs nothing:
1. journal commit, synced: from here on the results are certain. Crash before: the entries are still in the stream.
2. delete in Redis: entries, then complete micro-batches. Crash before: the entries are read again and dropped as
   duplicates; the next look closes the micro-batches.
3. ordered file, at offsets that the commit has fixed. Crash before: `Output.open` writes it from the journal.
4. lines leave the journal in a later commit, once the file is synced. Crash before: equal bytes are written again.
"""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from common.claim_types import Entry
from common.errors import ErrorKind, WireError
from common.log import Event, get_logger
from common.wire import Result, unpack_results
from producer import metrics
from producer.disk import writing_to
from producer.job import FencedError, Job
from producer.journal_reader import MicroBatchRow
from producer.journal_results import Stretch
from producer.output import Output

MOST_RESULTS = 4096
MOST_BYTES = 32 * 1024 * 1024
"""One commit takes in at most so much (one larger entry excepted): what is held in memory at once."""
_CODES = frozenset(("", *(kind.value for kind in ErrorKind)))

log = get_logger(__name__)


class Arrived(NamedTuple):
    """One readable entry."""

    id: str
    results: list[Result]
    size_bytes: int


class Taken(NamedTuple):
    """What one commit took in: new results, the micro-batches that are complete by them, what the ordered file gets."""

    fresh: list[Result]
    complete: list[int]
    stretch: Stretch | None


class Receiver:
    """Takes in one job's results."""

    def __init__(self, job: Job, output: Output) -> None:
        self._job = job
        self._output = output
        self._settled: list[str] = []
        """Entries that the journal has and Redis may still have."""
        self.empties = 0
        """How often the stream has been seen empty."""

    def receive(self) -> int:
        """Settle what is in the stream, and the frontier with it; returns the results that were new.

        Raises `FencedError`; `redis.RedisError`: what was journaled stays so; `StoppedError`.
        """
        self._delete([])
        arrived = self._gather()
        if not arrived and not self._job.journal.can_pass():
            return 0
        return self.settle([result for entry in arrived for result in entry.results], [entry.id for entry in arrived])

    def settle(self, results: list[Result], entry_ids: list[str]) -> int:
        """Make `results` certain, forget the entries that brought them, and let the ordered file grow."""
        began = time.monotonic()
        with self._job.journal.writing():
            taken = self._take_in(results)
        self._job.window.remove(taken.complete)
        self._job.estimates.learn(taken.fresh)
        _count(taken.fresh, repeated=len(results) - len(taken.fresh), took_s=time.monotonic() - began)
        self._settled += entry_ids
        try:
            self._delete(taken.complete)
        finally:  # Redis may be gone; the file need not wait for it
            self._write(taken.stretch)
        return len(taken.fresh)

    @contextmanager
    def settling_rest(self, results: list[Result]) -> Iterator[None]:
        """`settle` for results that no worker made, in one commit with what the block notes; Redis is told nothing.

        For a job that is about to be taken out of Redis as a whole.
        """
        began = time.monotonic()
        with self._job.journal.writing():
            yield
            taken = self._take_in(results)
        self._job.window.remove(taken.complete)
        _count(taken.fresh, repeated=len(results) - len(taken.fresh), took_s=time.monotonic() - began)
        self._write(taken.stretch)

    def _take_in(self, results: list[Result]) -> Taken:
        """What one commit does with `results`."""
        journal = self._job.journal
        journal.forget_pending(below=self._output.synced_frontier)
        fresh, stretch = journal.settle(results)
        complete = self._job.window.settle(fresh)
        journal.close_micro_batches(complete)
        return Taken(fresh, complete, stretch)

    def _write(self, stretch: Stretch | None) -> None:
        if stretch is not None:
            self._output.write(stretch)
            self._output.sync(frontier=stretch.frontier)

    def _delete(self, complete: list[int]) -> None:
        """Steps that Redis must hear of: entries that are journaled, micro-batches that are complete."""
        job = self._job
        if self._settled:
            job.claims.drop_entries(job.id, self._settled)
            self._settled = []
        if complete and "FENCED" in job.claims.close(job.id, complete, epoch=job.journal.epoch):
            raise FencedError

    def _gather(self) -> list[Arrived]:
        """Readable entries, oldest first, until the stream is empty or enough is at hand."""
        arrived: list[Arrived] = []
        results = size_bytes = 0
        last = "-"
        while results < MOST_RESULTS and size_bytes < MOST_BYTES:
            entries = self._job.claims.entries(self._job.id, after=last)
            if not entries:
                self.empties += 1
                break
            for entry in entries:
                last = entry.id
                size_bytes += len(entry.blob)
                found = self._read(entry)
                if found is not None:
                    arrived.append(found)
                    results += len(found.results)
        return arrived

    def _read(self, entry: Entry) -> Arrived | None:
        try:
            results = unpack_results(entry.blob)
            self._check(entry, results)
        except WireError as error:
            self._quarantine(entry, error)
            return None
        self._job.window.note_size(len(entry.blob), len(results))
        self._job.usage.note(results)
        return Arrived(entry.id, results, len(entry.blob))

    def _check(self, entry: Entry, results: list[Result]) -> None:
        """Raises `WireError` for an entry that must not reach the journal, whoever wrote it."""
        row = self._row(entry.mb)
        if row is None:
            raise WireError("an entry of no micro-batch of this job")
        seqs = frozenset(row.seqs)
        for seq, round_, status, code, _attempts, _prompt, _completion, line in results:
            if round_ != row.round or seq not in seqs:
                raise WireError("a result that is not of its micro-batch")
            if not line or b"\n" in line:
                raise WireError("a result that is not one line")
            if (status == 200) != (code == "") or code not in _CODES:
                raise WireError("a result of no known outcome")

    def _row(self, mb: int | None) -> MicroBatchRow | None:
        if mb is None:
            return None
        batch = self._job.window.open.get(mb)
        return batch.row if batch is not None else self._job.journal.micro_batch(mb)

    def _quarantine(self, entry: Entry, error: WireError) -> None:
        """Keep what cannot be read for a person to look at, then let it go; its requests run again."""
        folder: Path = self._job.directory.quarantine_path
        with writing_to(folder, what="an entry for quarantine"):
            folder.mkdir(mode=0o700, exist_ok=True)
            (folder / f"{entry.id}.entry").write_bytes(entry.blob)
        log.error(Event.ENTRY_QUARANTINED, job=self._job.id, entry=entry.id, mb=entry.mb, why=error.what)
        self._settled.append(entry.id)


def _count(fresh: list[Result], *, repeated: int, took_s: float) -> None:
    for outcome, number in Counter(result.code or "ok" for result in fresh).items():
        metrics.JOURNALED.labels(outcome).inc(number)
    metrics.DUPLICATES.inc(repeated)
    metrics.JOURNAL_SECONDS.observe(took_s)
