"""Again: the requests of a rerun in the intake's stead. Their lines are read a second time, in order, from the input.

A request that ran before goes to the model that it went to then, which its old result names; one that was cancelled may
never have been judged, and is read as if for the first time.
"""

import os
from collections import deque
from collections.abc import Iterable

import orjson

from common.errors import ErrorKind
from producer.intake import Position, Taken
from producer.job import Job
from producer.journal import RequestRow
from producer.journal_rounds import AgainRow
from producer.reader import ChooseModel


class Again:
    """Reads what a rerun of `job` has still to feed."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._rows: deque[AgainRow] = deque()
        self._read_below = 0
        self._unread = job.journal.again_left()
        self._output = -1
        """Opened when a line of it is asked for: once all is fed, it may have another name for a moment."""
        self.grows, self.awaited = False, None
        self.exhausted = False
        """Whether all of them have been read."""

    def close(self) -> None:
        """Close the ordered file."""
        if self._output >= 0:
            os.close(self._output)

    def read(self) -> tuple[int, Taken | None] | None:
        """The next request: its line's bytes, and what it is now. None: there is none left.

        Raises `RefusedError` when the input has changed since it was fed.
        """
        if not self._rows:
            self._rows += self._job.journal.again_after(self._read_below - 1)
        if not self._rows:
            self.exhausted = True
            return None
        row = self._rows.popleft()
        self._read_below = row.seq + 1
        self._unread -= 1
        line = self._job.payloads.read_line(row.place, id_hash=row.id_hash, choose_model=self._choice_for(row))
        return row.place.length, Taken(row.seq, line)

    def look(self) -> None:
        """Nothing: the input grows no more."""

    def end_here(self) -> None:
        """Nothing: it ends by itself."""

    def recall(self) -> int:
        """Nothing: ids were settled in the first round."""
        return 0

    def recalling(self) -> str | None:
        """Nothing."""
        return None

    def note(self, rows: list[RequestRow], *, waiting: Position | None) -> None:
        """Within a transaction: `rows` are settled by it."""
        self._job.journal.take_again([row.seq for row in rows])

    def settled(self, rows: Iterable[RequestRow]) -> None:
        """The journal has `rows` from now on."""

    def has_bytes(self) -> bool:
        """Whether there is anything in it."""
        return self._unread > 0

    def unread(self) -> int:
        """Requests not read yet."""
        return self._unread

    def _choice_for(self, row: AgainRow) -> ChooseModel:
        before = None if row.code == ErrorKind.CANCELLED else self._model_before(row)
        return self._job.models.choose if before is None else lambda named: named or before

    def _model_before(self, row: AgainRow) -> str | None:
        if self._output < 0:
            self._output = os.open(self._job.directory.output_path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            model = orjson.loads(os.pread(self._output, row.out_length, row.out_offset))["meta"]["model"]
        except (ValueError, KeyError, TypeError):  # somebody has edited the ordered file in place
            return None
        return model if isinstance(model, str) else None
