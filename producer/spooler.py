"""The spooler: copies an input that cannot be read twice into the job directory, while the job already runs on it.

A thread of the command that has the input. It only appends to the copy. Who collects the job, here or in another
process, reads the copy as it grows; that more may come it knows by the lock, that no more does by the end's mark.
A copy that was stopped in its middle is gone on with by the same command and the same input from its beginning.
"""

import gzip
import os
import select
import stat
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from io import BufferedReader, RawIOBase
from pathlib import Path
from typing import IO, Any, BinaryIO, Self, cast

from common.errors import BakehouseError, RefusedError, StoppedError
from producer.disk import write_refused, writing_to
from producer.input_file import BLOCK_BYTES, GZIP, STDIN, create_private
from producer.job_input import End, JobInput
from producer.job_lock import JobLock

TURN_S = 0.2
"""Whether to stop is looked at this often while nothing comes."""
INTERRUPT_S = 0.5
"""A pipe's end is believed after so long: an interrupt that ended its writer is known here by then."""
_COPY = "the copy of the input"
_DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile)


class Spooler:
    """Copies one job's input while entered; used once."""

    def __init__(self, job_input: JobInput, *, until_idle_s: float) -> None:
        """`until_idle_s`: the input ends when nothing has come for so long; 0: with its own end alone."""
        self._input = job_input
        self._until_idle_s = until_idle_s
        self._held = ExitStack()
        self._stop = threading.Event()
        self._compared = threading.Event()
        self._thread = threading.Thread(target=self._run, name="spooler", daemon=True)
        self._error: BakehouseError | None = None

    def __enter__(self) -> Self:
        """Take the lock and begin. Raises `RefusedError` when another process copies this input."""
        self._held.enter_context(JobLock(self._input.lock_path))
        self._input.copying = self
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(2 * TURN_S)  # where it waits for somebody to open a pipe, it ends with the process
        self._held.close()

    def check(self) -> None:
        """Raises what stopped the copying before the input ended."""
        if self._error is not None:
            raise self._error

    def interrupt(self) -> None:
        """End it soon, without the end's mark: who writes into a pipe may have ended by the same interrupt."""
        self._stop.set()

    def await_compared(self) -> None:
        """Block until what was copied before has come again. Raises `RefusedError` when it is not the same."""
        while self._thread.is_alive() and not self._compared.wait(TURN_S):
            pass
        self.check()

    def wait(self) -> None:
        """Block until the whole input is copied. Raises what stopped it."""
        while self._thread.is_alive():
            self._thread.join(TURN_S)
        self.check()

    def _run(self) -> None:
        try:
            with self._input.path.open("r+b", buffering=0) as copy:
                with open_source(self._input.spec.input) as source:
                    tap = _Tap(source, stop=self._stop, until_idle_s=self._until_idle_s)
                    total = _plain_size(source)
                    has_ended = self._copy(BufferedReader(tap, BLOCK_BYTES), copy, total=total)
                if has_ended and (total is not None or not self._stop.wait(INTERRUPT_S)):
                    self._mark_end(copy)
        except BakehouseError as error:
            self._error = error
        except _DAMAGED as error:
            self._error = StoppedError(f"the gzip input is damaged: {error}", where=self._input.described)
        except OSError as error:
            self._error = StoppedError(f"the input cannot be read: {error.strerror}", where=self._input.described)

    def _copy(self, source: BufferedReader, copy: BinaryIO, *, total: int | None) -> bool:
        """Compare with what is there, then append; returns whether the input has ended. `total`: its size, if known."""
        left = os.fstat(copy.fileno()).st_size
        if not left:
            self._compared.set()
        for block in _blocks(source):
            known, new = block[:left], block[left:]
            if copy.read(len(known)) != known:
                raise _differs(self._input.path)
            left -= len(known)
            if new:
                self._compared.set()
                _write_copy(copy, new, target=self._input.path, total=total)
        if self._stop.is_set():
            return False
        if left:
            raise _differs(self._input.path)
        return True

    def _mark_end(self, copy: BinaryIO) -> None:
        with writing_to(self._input.path, what=_COPY):
            os.fsync(copy.fileno())
            self._input.mark_end(End(copy.tell()))
        self._compared.set()


def spool(source: BufferedReader, target: Path) -> None:
    """Copy all of `source` (gzip is unpacked) to the new file `target`, mode 0600, synced. Blocks until `source` ends.

    Raises `RefusedError` when the packed data are damaged or cut short, `DiskError` when the copy cannot be written.
    """
    try:
        with create_private(target, buffering=0) as copy:
            for block in _blocks(source):
                _write_copy(copy, block, target=target, total=None)
            with writing_to(target, what=_COPY):
                os.fsync(copy.fileno())
    except _DAMAGED as error:
        raise RefusedError(f"the gzip input is damaged: {error}", do="check it with gzip --test") from error


def check_given_again(job_input: JobInput) -> None:
    """Read all of an input given again; raises `RefusedError` unless it is, byte for byte, the copy that was made."""
    with open_source(job_input.spec.input) as source:
        check_same_as_spooled(BufferedReader(cast(Any, source), BLOCK_BYTES), job_input.path)


def check_same_as_spooled(source: BufferedReader, copy: Path) -> None:
    """Read all of `source` and raise `RefusedError` unless it equals the spooled `copy` byte for byte."""
    with copy.open("rb") as file:
        if not all(block == file.read(len(block)) for block in _blocks(source)) or file.read(1):
            raise _differs(copy)


def open_source(name: str) -> BinaryIO:
    """Standard input (closing it leaves the descriptor open) or the file `name`, for reading, without a buffer."""
    return open(0, "rb", buffering=0, closefd=False) if name == STDIN else open(name, "rb", buffering=0)


class _Tap(RawIOBase):
    """A source that never blocks for long: it ends when it is told to, or when nothing has come for too long."""

    def __init__(self, source: BinaryIO, *, stop: threading.Event, until_idle_s: float) -> None:
        super().__init__()
        self._source = source
        self._stop = stop
        self._until_idle_s = until_idle_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """The next bytes, as many as there are; 0 at the end."""
        began_s = time.monotonic()
        while not select.select([self._source], [], [], TURN_S)[0]:
            is_idle = 0 < self._until_idle_s <= time.monotonic() - began_s
            if self._stop.is_set() or is_idle:
                return 0
        return 0 if self._stop.is_set() else cast(Any, self._source).readinto(buffer)


class _AsItComes:
    """A stream whose `read` gives what is there, for unpacking it as it comes."""

    def __init__(self, stream: BufferedReader) -> None:
        self.read = stream.read1


def _blocks(source: BufferedReader) -> Iterator[bytes]:
    """What `source` holds, unpacked where it is packed by gzip, as it comes."""
    is_packed = source.peek(len(GZIP)).startswith(GZIP)
    stream = gzip.GzipFile(fileobj=cast(IO[bytes], _AsItComes(source)), mode="rb") if is_packed else source
    while block := stream.read1(BLOCK_BYTES):
        yield block


def _plain_size(source: BinaryIO) -> int | None:
    """Bytes in `source`, where it is a file."""
    facts = os.fstat(source.fileno())
    return facts.st_size if stat.S_ISREG(facts.st_mode) else None


def _write_copy(copy: BinaryIO, block: bytes, *, target: Path, total: int | None) -> None:
    """Raises `DiskError` saying how much room the copy needs, as far as `total` tells it."""
    rest = memoryview(block)
    try:
        while rest:
            rest = rest[copy.write(rest) :]
    except OSError as error:
        refused = write_refused(error, what=_COPY, path=target)
        if refused.is_full:
            size = f"more than {copy.tell() + len(rest):,}" if total is None else f"{total:,}"
            refused.do = f"make room for {size} bytes, and give the same command and input again"
        raise refused from error


def _differs(copy: Path) -> RefusedError:
    return RefusedError(
        "the input differs from what this job has read", where=str(copy), do="start a new job with --fresh"
    )
