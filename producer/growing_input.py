"""An input that still grows, as the intake reads it: whole lines alone, and its end only when that is known for good.

A line without its LF waits for it, or for the end. Of a copy only what is durable is read, since what is fed must stay.
"""

import os
from typing import BinaryIO

from common.errors import StoppedError
from producer.input_file import BLOCK_BYTES
from producer.job_input import End, JobInput

AHEAD_BYTES = 16 * 1024 * 1024
"""While so much is known to be there, no more is looked for: what is looked for must be synced first."""
LONGEST_STEP_S = 2.0
"""At most so much of the time between two looks counts as idle: who did not look may have missed something."""


class GrowingInput:
    """A stream for `reader.read_lines` that gives what `look` has found."""

    def __init__(self, job_input: JobInput, file: BinaryIO, *, until_idle_s: float, now_s: float) -> None:
        """`file` stands where reading goes on. `until_idle_s`: a followed file ends when it has not grown for so long.

        Raises `RefusedError` when the input is shorter than what was read of it.
        """
        self._input = job_input
        self._file = file
        self._until_idle_s = until_idle_s
        self._at = self._searched = self.size = file.tell()
        """`size`: up to here it can be read."""
        self._length = -1
        self._idle_s = 0.0
        self._looked_s = now_s
        self.ended = False
        """Whether nothing comes behind `size`."""
        if (there := os.fstat(file.fileno()).st_size) < self._at:
            raise job_input.changed(f"{self._at} bytes were read, {there} are there now")

    def readline(self, size: int = -1, /) -> bytes:
        """The next line, or at most `size` bytes of it; empty where there is none now."""
        room = self.size - self._at
        line = self._file.readline(room if size < 0 else min(size, room))
        self._at += len(line)
        return line

    def look(self, *, now_s: float) -> None:
        """See what has come, and whether the end has.

        Raises what stopped the copying in this process; `StoppedError` when a followed file was cut or replaced;
        `RefusedError` when it is shorter than where it ended.
        """
        if not self.ended and self.size - self._at >= AHEAD_BYTES:
            return
        end = End(self.size) if self.ended else self._input.end()  # before its length: what is there then is all of it
        length = os.fstat(self._file.fileno()).st_size
        if end is not None:
            if length < end.size:
                raise self._input.changed(f"it ended after {end.size} bytes, {length} are there now")
            self.size, self.ended = end.size, True
            return
        if self._input.copying is not None:
            self._input.copying.check()
        idle_s = min(now_s - self._looked_s, LONGEST_STEP_S)
        self._idle_s = self._idle_s + idle_s if length == self._length else 0.0
        self._looked_s, self._length = now_s, length
        if self._input.spec.follow:
            self._check_followed(length)
            if 0 < self._until_idle_s <= self._idle_s:
                self.end_here()
                return
        elif length > self._searched:
            os.fdatasync(self._file.fileno())
        if (line_end := _last_line_end(self._file.fileno(), self._searched, length)) is not None:
            self.size = line_end
        self._searched = max(self._searched, length)

    def end_here(self) -> None:
        """Let what is there be all of it, for good."""
        length = os.fstat(self._file.fileno()).st_size
        if not self._input.spec.follow:
            os.fdatasync(self._file.fileno())
        self.size, self.ended = self._input.mark_end(End(length)).size, True

    @property
    def is_written(self) -> bool:
        """Whether more may come by itself."""
        return self._input.spec.follow or self._input.copier() is not None

    @property
    def will_end(self) -> bool:
        """Whether its end comes by itself, too."""
        return self.is_written and (not self._input.spec.follow or self._until_idle_s > 0)

    def waits_for(self) -> str:
        """What it waits for while there is nothing to read."""
        growing = self._input
        if self.is_written:
            until = f" (the end comes after {self._until_idle_s:g} s without)" if self._until_idle_s else ""
            return f"waiting for lines in {growing.described}{until}"
        return (
            f"{growing.described} was not read to its end: give the same command the same input again,"
            f" or do without the rest by producer resume {growing.spec.job}"
        )

    def _check_followed(self, length: int) -> None:
        if length < self._searched:
            raise StoppedError(
                "the followed file was cut", where=self._input.described, do="--fresh begins a new job with it"
            )
        try:
            there, ours = os.stat(self._input.path), os.fstat(self._file.fileno())
            is_same = (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)
        except FileNotFoundError:
            is_same = False
        if not is_same:
            raise StoppedError(
                "the followed file was moved or replaced; its lines so far keep their results",
                where=self._input.described,
                do="put it back to go on, or give --fresh for a new job with the new file",
            )


def _last_line_end(descriptor: int, low: int, high: int) -> int | None:
    """The offset behind the last LF between `low` and `high`."""
    while high > low:
        start = max(low, high - BLOCK_BYTES)
        found = os.pread(descriptor, high - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        high = start
    return None
