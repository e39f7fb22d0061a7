"""A job's journal as its collector writes it: what is known for certain. Every other store can be built again from it.

A line's way passes here twice: as a row of a micro-batch before it is offered, and as a result before anything else
is done with it. All writing happens in `with journal.writing():`, one synced commit each.
"""

import secrets
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Self

import orjson

from common.errors import StoppedError
from producer.disk import journal_refused
from producer.journal_reader import MicroBatchRow, pack_seqs
from producer.journal_results import JournalResults
from producer.journal_schema import open_for_writing
from producer.steering import Course


class RequestRow(NamedTuple):
    """One request, as it is fed."""

    seq: int
    line: int
    offset: int
    length: int
    id_hash: bytes | None


class Journal(JournalResults):
    """The one writer. `counts` is what the next commit stores."""

    def __init__(self, connection: sqlite3.Connection, *, path: Path) -> None:
        super().__init__(connection)
        self._path = path
        self._seen_version = self._data_version()  # before all that is read of it here and by those who are given it
        checkpoint = self.checkpoint()
        self.epoch = checkpoint.epoch
        self.owner, self.owner_epoch = self._one("SELECT owner, owner_epoch FROM checkpoint")
        self.mb_high = checkpoint.mb_high
        self.frontier = checkpoint.frontier
        self.digests = checkpoint.digests
        self.counts = checkpoint.counts
        self.course = Course(checkpoint.state, checkpoint.steering)
        self.round, self.shown = checkpoint.round, checkpoint.shown
        self._out_bytes = checkpoint.out_bytes
        self._error_bytes = checkpoint.error_bytes
        self.is_broken = False
        """Whether a transaction failed: `counts` and `frontier` are ahead of the file, so no other may follow it."""

    @classmethod
    def open(cls, path: Path) -> Self:
        """The journal at `path`, made when it is not there. Raises `RefusedError`, `StoppedError`."""
        return cls(open_for_writing(path), path=path)

    def prepare(self) -> None:
        """Settle the `owner` under which the next epoch is asked for; the same one after a crash before `take`.

        Raises `StoppedError` when a newer collector has taken the job.
        """
        if self.owner_epoch != self.epoch + 1:
            with self._transaction():
                self.check_unmoved()
                self.owner, self.owner_epoch = secrets.token_hex(8), self.epoch + 1
                self._connection.execute(
                    "UPDATE checkpoint SET owner = ?, owner_epoch = ?", (self.owner, self.owner_epoch)
                )

    def take(self) -> None:
        """Raise the epoch: from now on an older collector's transactions fail.

        Raises `StoppedError` when another one did so first: it may have asked for this very epoch, also as this owner.
        """
        with self._transaction():
            self.check_unmoved()
            self._connection.execute("UPDATE checkpoint SET epoch = ?", (self.owner_epoch,))
        self.epoch = self.owner_epoch

    def check_epoch(self) -> None:
        """Raises `StoppedError` when a newer collector has taken the job."""
        if self.epoch_now() != self.epoch:
            raise StoppedError("a newer collector has taken this job", where=str(self._path))

    def check_unmoved(self) -> None:
        """Raises `StoppedError` when somebody else has written since this was opened: what was read then is stale.

        Only where a lock was lost: a collector that stood still, or one that was thought to.
        """
        self.check_epoch()
        if self._data_version() != self._seen_version:
            raise StoppedError("another collector still writes this journal", where=str(self._path), do="try again")

    @contextmanager
    def writing(self) -> Iterator[None]:
        """One transaction, synced at its end; undone when the block raises, and then it was the last one.

        Raises `StoppedError` when a newer collector owns the job (nothing is written), or the disk refuses.
        """
        with self._transaction():
            self.check_epoch()
            yield
            self._connection.execute("UPDATE checkpoint SET counts = ?", (self.counts.to_json(),))

    def add_requests(self, rows: Sequence[RequestRow]) -> None:
        """Note requests; each must be in a micro-batch or have a result by the end of this transaction."""
        self._connection.executemany(
            "INSERT INTO request VALUES (?, ?, ?, ?, ?)",
            [(*row[:4], row.id_hash and bytearray(row.id_hash)) for row in rows],  # see `JournalResults._insert`
        )
        self.counts.fed += len(rows)

    def add_micro_batches(self, rows: Iterable[MicroBatchRow]) -> None:
        """Note micro-batches before they are offered; their numbers must be above `mb_high`."""
        packed = [(*row[:4], pack_seqs(row.seqs), *row[5:]) for row in rows]
        self._connection.executemany("INSERT INTO micro_batch VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1)", packed)
        if packed:
            self.mb_high = max(self.mb_high, packed[-1][0])
            self._connection.execute("UPDATE checkpoint SET mb_high = ?", (self.mb_high,))

    def set_position(self, position: tuple[int, int, int]) -> None:
        """(offset, line, seq) where a continued job goes on reading: every request of an earlier line is noted."""
        self._connection.execute("UPDATE checkpoint SET input_offset = ?, input_line = ?, input_seq = ?", position)

    def close_micro_batches(self, mbs: Iterable[int]) -> None:
        """Note that each seq of these has a result, or travels on in a newer micro-batch."""
        self._connection.executemany("UPDATE micro_batch SET open = 0 WHERE mb = ?", [(mb,) for mb in mbs])

    def add_loss(self, mb: int, seqs: Iterable[int], *, token: str, armed: bool, cause: str) -> None:
        """Note that the hold `token` on `mb` was lost with `seqs` unfinished."""
        self._connection.executemany(
            "INSERT OR IGNORE INTO loss VALUES (?, ?, ?, ?, ?)",
            [(seq, token, self.round, armed, cause) for seq in seqs],
        )
        self._connection.execute("UPDATE micro_batch SET deliveries = deliveries + 1 WHERE mb = ?", (mb,))
        self.counts.redelivered += 1

    def add_repair(self, mb: int) -> None:
        """Note that entries of `mb` were published and then lost by Redis."""
        self._connection.execute("UPDATE micro_batch SET repairs = repairs + 1 WHERE mb = ?", (mb,))

    def pin(self, digests: Mapping[str, str]) -> None:
        """Note which build of each model answers this job; a pin once noted stays."""
        self.digests = {**digests, **self.digests}
        self._connection.execute("UPDATE checkpoint SET digests = ?", (orjson.dumps(self.digests),))

    def steer(self, course: Course) -> None:
        """Note what the job has become."""
        self.course = course
        self._connection.execute(
            "UPDATE checkpoint SET state = ?, steering = ?", (course.state, course.steering.to_json())
        )

    def finish(self, *, exit_code: int) -> None:
        """Note that the job is done and how its command ends."""
        self._connection.execute("UPDATE checkpoint SET state = 'done', exit_code = ?", (exit_code,))

    @property
    def is_whole(self) -> bool:
        """Whether every request of the whole input has a result, and its place in the ordered file."""
        return self.counts.finished and self.frontier == self.counts.total

    def _data_version(self) -> int:
        return int(self._one("PRAGMA data_version")[0])

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        if self.is_broken:
            raise StoppedError("the journal takes no more after a write that failed", where=str(self._path))
        self.is_broken = True
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                self._connection.rollback()
                raise
        except sqlite3.Error as error:
            raise journal_refused(error, path=self._path) from error
        self.is_broken = False
