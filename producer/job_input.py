"""A job's input: the user's file, or its copy in the job directory. It may grow while the job runs on it.

    input/  spooled.jsonl  ended  lock  read

`spooled.jsonl` is the copy of what cannot be read twice. `ended` appears, once and for good, when it is known where a
growing input ends. `lock` is held by the command that copies. `read` says what a followed file began with.
"""

import os
import secrets
import stat
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

import orjson

from common.errors import RefusedError
from producer.input_file import (
    STDIN,
    Fingerprint,
    create_private,
    hash_blocks,
    sync_folder,
    take_fingerprint,
)
from producer.job_lock import JobLock, read_holder
from producer.job_spec import JobSpec

_READ_BYTES = 1024 * 1024


class End(NamedTuple):
    """Where a growing input ends."""

    size: int
    lines: int | None = None
    """Set where the rest never came: how many lines did."""


class Copying(Protocol):
    """Copies the input in this process."""

    def check(self) -> None:
        """Raises what stopped it."""

    def interrupt(self) -> None:
        """End it: what comes from now on may be cut short by the same interrupt."""


class JobInput:
    """One job's input, for every command that deals with it."""

    def __init__(self, folder: Path, spec: JobSpec) -> None:
        self.spec = spec
        self.path = folder / "spooled.jsonl" if spec.spooled else Path(spec.input)
        self.lock_path = folder / "lock"
        self._folder = folder
        self._end_path = folder / "ended"
        self._read_path = folder / "read"
        self._known: dict[int, str] = {}
        self._noted_size = 0
        self.copying: Copying | None = None
        """Where this process copies it."""

    @property
    def grows(self) -> bool:
        """Whether it may grow while it is read, until its end is marked."""
        return self.spec.streamed or self.spec.follow

    @property
    def described(self) -> str:
        """The input as people call it."""
        return "standard input" if self.spec.input == STDIN else self.spec.input

    def open(self) -> BinaryIO:
        """It, open for `reader.read_lines` at its start."""
        return self.path.open("rb", buffering=_READ_BYTES)

    def check_unchanged(self) -> None:
        """Raises `RefusedError` naming --fresh when it is not what the job began with, or has read so far.

        A spooled input whose source is gone, or cannot be read twice, is as good as its copy.
        """
        spec, source = self.spec, Path(self.spec.input)
        if spec.spooled and self.path.is_file() and (spec.streamed or not source.is_file()):
            return
        if spec.follow:
            self._check_read_part()
            return
        before = Fingerprint(spec.input_size, spec.input_mtime_ns, spec.input_block_hashes)
        try:
            now = take_fingerprint(source)
        except OSError as error:
            raise RefusedError(f"the input cannot be read: {error.strerror}", where=spec.input) from error
        if not now.same_as(before):
            raise self.changed(f"{before.size} bytes then, {now.size} now")

    def note_read(self, descriptor: int, *, size: int) -> None:
        """Note what the first `size` bytes of a followed file are, so that a change of them is seen.

        Not synced: after a power cut an older note may be there, or none, and less of the file is known.
        """
        if not self.spec.follow or size == self._noted_size:
            return
        self._noted_size = size
        note = {"size": size, "block_hashes": hash_blocks(descriptor, size=size, known=self._known)}
        draft = self._read_path.with_suffix(".new")
        draft.unlink(missing_ok=True)
        with create_private(draft) as file:
            file.write(orjson.dumps(note))
        draft.rename(self._read_path)

    def end(self) -> End | None:
        """Where it ends, None while that is not known: it may grow."""
        try:
            return End(**orjson.loads(self._end_path.read_bytes()))
        except FileNotFoundError:
            return None

    def mark_end(self, end: End) -> End:
        """Note for good where it ends, synced; returns what was noted first. What is before it must be durable."""
        draft = self._end_path.with_suffix(f".{secrets.token_hex(4)}")
        with create_private(draft) as file:
            file.write(orjson.dumps(end._asdict()))
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, self._end_path)
        except FileExistsError:
            pass  # somebody else knew it before
        finally:
            draft.unlink()
        sync_folder(self._folder)
        return self.end() or end

    def interrupt_copying(self) -> None:
        """End the copying, where this process copies."""
        if self.copying is not None:
            self.copying.interrupt()

    def copier(self) -> str | None:
        """Who copies it now; None where nobody does."""
        return read_holder(self.lock_path)

    def end_early(self) -> End | None:
        """Do without the rest of an input whose copying was stopped; returns how much came, None where it is whole.

        None also where somebody copies it at this moment.
        """
        if not self.spec.streamed:
            return None
        end = self.end()
        if end is None:
            try:
                with JobLock(self.lock_path):
                    end = self.end() or self.mark_end(self._count_copy())
            except RefusedError:
                return None
        return end if end.lines is not None else None

    def changed(self, how: str) -> RefusedError:
        """What to raise when it is not what it was."""
        return RefusedError(
            f"the input has changed since job {self.spec.job} began ({how})",
            where=self.spec.input,
            do="put it back, or give --fresh for a new job (with --overwrite, or another -o)",
        )

    def _count_copy(self) -> End:
        """What there is of the copy, durable from now on."""
        with self.path.open("rb") as copy:
            os.fdatasync(copy.fileno())
            lines, last = 0, b"\n"
            while block := copy.read(_READ_BYTES):
                lines, last = lines + block.count(b"\n"), block[-1:]
            return End(copy.tell(), lines + (last != b"\n"))

    def _check_read_part(self) -> None:
        try:
            with self.path.open("rb") as file:
                facts = os.fstat(file.fileno())
                if not stat.S_ISREG(facts.st_mode):
                    raise self.changed("it is no regular file any more")
                try:
                    note = orjson.loads(self._read_path.read_bytes())
                except (FileNotFoundError, orjson.JSONDecodeError):
                    return
                size = note["size"]
                if facts.st_size < size:
                    raise self.changed(f"{size} bytes were read, {facts.st_size} are there now")
                if list(hash_blocks(file.fileno(), size=size, known={})) != note["block_hashes"]:
                    raise self.changed(f"in the {size} bytes that were read")
        except OSError as error:
            raise RefusedError(f"the input cannot be read: {error.strerror}", where=self.spec.input) from error
