"""The intake: a job's input, read once from where the journal says that reading goes on; each line gets its seq.

The input may still grow: then there is no line now, and there may be one later. Lines that were settled before a crash
are passed over. A line whose custom_id an earlier one has is rejected here, any other bad one was by `reader`. What is
read is the feeder's; it tells when it has been journaled.
"""

import os
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from common.errors import ErrorKind
from producer.growing_input import GrowingInput
from producer.job import Job
from producer.journal import RequestRow
from producer.known_ids import KnownIds
from producer.reader import BlankLine, InputLine, RejectedLine, read_lines

_SAMPLE_BYTES = 64 * 1024


class Position(NamedTuple):
    """Where reading goes on."""

    offset: int
    line: int
    """The 1-based line that starts there."""
    seq: int
    """The seq that its request would get."""


class Taken(NamedTuple):
    """One line that counts, with its seq."""

    seq: int
    line: InputLine | RejectedLine


class Intake:
    """Reads one job's input, for one collector."""

    def __init__(self, job: Job) -> None:
        self._job = job
        start = job.journal.checkpoint()
        self.position = Position(start.input_offset, start.input_line, start.input_seq)
        self._known_below = job.journal.next_seq()
        self._ids = KnownIds(job.journal)
        self._input = job.directory.open_input()
        self._input.seek(self.position.offset)
        self._growing = self._grow() if job.directory.input.grows else None
        self._lines = self._read_on()
        self._hungry = False
        """Whether all lines that are there have been read, and more may come."""
        self.exhausted = False
        """Whether all lines have been read."""

    def _grow(self) -> GrowingInput:
        job = self._job
        until_idle_s = job.settings.until_idle_s or job.spec.until_idle_s
        return GrowingInput(job.directory.input, self._input, until_idle_s=until_idle_s, now_s=time.monotonic())

    def _read_on(self) -> Iterator[InputLine | RejectedLine | BlankLine]:
        job, (offset, line, _) = self._job, self.position
        return read_lines(
            self._growing or self._input,
            offset=offset,
            line=line,
            choose_model=job.models.choose,
            include_request=job.spec.include_request,
            max_line_bytes=job.spec.max_line_bytes,
        )

    def close(self) -> None:
        """Close the input."""
        self._input.close()

    def look(self) -> None:
        """See how far an input that grows has come; raises what stopped it."""
        if self._growing is not None:
            self._growing.look(now_s=time.monotonic())

    def end_here(self) -> None:
        """Let an input that grows end with what is there."""
        if self._growing is not None:
            self._growing.end_here()

    @property
    def grows(self) -> bool:
        """Whether more than is there now may come."""
        return self._growing is not None and not self._growing.ended

    @property
    def awaited(self) -> GrowingInput | None:
        """What more lines may come from, where all that are there have been read."""
        return self._growing if self._hungry else None

    def read(self) -> tuple[int, Taken | None] | None:
        """The next line: its bytes, and what it is (None: blank, or settled before). None: there is none now, or left.

        What `look` has not seen is not read.
        """
        item = next(self._lines, None)
        self._hungry = item is None and self.grows
        if item is None:
            self.exhausted = not self.grows
            self._lines = self._read_on()
            return None
        seq = self.position.seq
        is_blank = isinstance(item, BlankLine)
        self.position = Position(item.offset + item.length, item.line + 1, seq if is_blank else seq + 1)
        if isinstance(item, BlankLine) or (seq < self._known_below and self._job.journal.has_request(seq)):
            return item.length, None
        if item.id_hash is not None and not self._ids.take(item.id_hash, seq):
            item = _duplicate(item) if isinstance(item, InputLine) else item._replace(id_hash=None)
        return item.length, Taken(seq, item)

    def note(self, rows: list[RequestRow], *, waiting: Position | None) -> None:
        """Within a transaction: `rows` are settled by it, and with them all lines before `waiting` (None: all read)."""
        journal = self._job.journal
        journal.add_requests(rows)
        journal.set_position(waiting or self.position)
        journal.counts.blank = self.blank
        if self.exhausted:
            journal.counts.total = self.position.seq

    def settled(self, rows: Iterable[RequestRow]) -> None:
        """The journal has `rows` from now on, and with them their ids."""
        self._ids.journaled(row.id_hash for row in rows)
        self._job.directory.input.note_read(self._input.fileno(), size=self.position.offset)

    def recall(self) -> int:
        """Before there is more to read: recall some of the ids that earlier collectors read; returns of how many lines.

        `read` does all of it at once where that has not been done.
        """
        return self._ids.recall() if self.unread() else 0

    def recalling(self) -> str | None:
        """How far `recall` is, None where there is nothing to recall."""
        missing, of = self._ids.missing, self._ids.before
        if not (missing and self.unread()):
            return None
        return f"the custom_ids of {of:,} lines read before are recalled: {1 - missing / of:.0%}"

    @property
    def blank(self) -> int:
        """Blank lines so far."""
        return self.position.line - 1 - self.position.seq

    def has_bytes(self) -> bool:
        """Whether there is anything in it."""
        return self._size() > 0

    def unread(self) -> int:
        """Requests not read yet, estimated from their bytes."""
        offset, line, _ = self.position
        lines, read_bytes = (line - 1, offset) if offset else _sample_lines(self._input.fileno())
        return -(-(self._size() - offset) * lines // max(1, read_bytes))

    def _size(self) -> int:
        return os.fstat(self._input.fileno()).st_size if self._growing is None else self._growing.size


def row_of(taken: Taken) -> RequestRow:
    """The journal's row of a line."""
    line = taken.line
    return RequestRow(taken.seq, line.line, line.offset, line.length, line.id_hash)


def _duplicate(item: InputLine) -> RejectedLine:
    return RejectedLine(
        item.line,
        item.offset,
        item.length,
        item.custom_id,
        ErrorKind.DUPLICATE_CUSTOM_ID,
        "an earlier line has this custom_id; the first use runs",
        item.original,
        None,
    )


def _sample_lines(descriptor: int) -> tuple[int, int]:
    """(lines, bytes) of the input's first 64 KiB: what tells how many there are, before the first one is read."""
    head = os.pread(descriptor, _SAMPLE_BYTES, 0)
    return head.count(b"\n") + (not head.endswith(b"\n")), len(head)
