"""The input before a line is read: can it be read twice, is it still the same, and its copy where it cannot.

Standard input, pipes and gzip files are copied ("spooled") into the job directory, so that a stopped job can go on.
"""

import gzip
import os
import stat
import zlib
from collections.abc import Iterator
from hashlib import blake2b
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, NamedTuple

from common.errors import RefusedError
from producer.disk import write_refused, writing_to

STDIN = "-"
BLOCK_BYTES = 64 * 1024
MOST_BLOCKS = 64
_GZIP = b"\x1f\x8b"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_COPY = "the copy of the input"
_OTHER_PACKING = {b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"PK\x03\x04": "zip"}


class Fingerprint(NamedTuple):
    """What tells a changed input: size, time of change, and hashes of at most 64 blocks of 64 KiB evenly spread.

    A file of at most 4 MiB is hashed whole; then the time of change does not count.
    """

    size: int
    mtime_ns: int
    block_hashes: tuple[str, ...]

    def same_as(self, other: "Fingerprint") -> bool:
        """Whether both are taken from the same content, as far as can be told."""
        if (self.size, self.block_hashes) != (other.size, other.block_hashes):
            return False
        return self.size <= BLOCK_BYTES * MOST_BLOCKS or self.mtime_ns == other.mtime_ns


def take_fingerprint(path: Path) -> Fingerprint:
    """The fingerprint of the file at `path`; reads at most 4 MiB."""
    with path.open("rb") as file:
        facts = os.fstat(file.fileno())
        hashes = []
        for offset in _block_offsets(facts.st_size):
            file.seek(offset)
            hashes.append(blake2b(file.read(BLOCK_BYTES), digest_size=8).hexdigest())
    return Fingerprint(facts.st_size, facts.st_mtime_ns, tuple(hashes))


def _block_offsets(size: int) -> Iterator[int]:
    if size <= BLOCK_BYTES * MOST_BLOCKS:
        yield from range(0, size, BLOCK_BYTES)
    else:
        last = size - BLOCK_BYTES
        yield from (last * block // (MOST_BLOCKS - 1) for block in range(MOST_BLOCKS))


def check_input(path: Path) -> bool:
    """Refuse what can never be an input; returns whether `path` must be spooled (a pipe, or packed by gzip).

    Raises `RefusedError`: no such file, a folder, unreadable, UTF-16, or packed in another way.
    """
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise RefusedError("the input is a folder", where=str(path), do="name a JSONL file")
        if not stat.S_ISREG(mode):
            return True
        with path.open("rb") as file:
            head = file.read(8)
    except OSError as error:
        raise RefusedError(f"the input cannot be read: {error.strerror}", where=str(path)) from error
    if head.startswith(_UTF_16):
        raise RefusedError("the input is UTF-16", where=str(path), do="convert it: iconv -f UTF-16 -t UTF-8")
    for magic, name in _OTHER_PACKING.items():
        if head.startswith(magic):
            raise RefusedError(f"the input is packed by {name}", where=str(path), do="unpack it first, or use gzip")
    return head.startswith(_GZIP)


def spool(source: BufferedReader, target: Path) -> None:
    """Copy all of `source` (gzip is unpacked) to the new file `target`, mode 0600, synced. Blocks until `source` ends.

    Raises `RefusedError` when the packed data are damaged or cut short, `DiskError` when the copy cannot be written.
    """
    try:
        is_packed = _is_packed(source)
        with create_private(target, buffering=0) as copy:
            for block in _read_blocks(source):
                _write_copy(copy, block, target=target, source=None if is_packed else source)
            with writing_to(target, what=_COPY):
                os.fsync(copy.fileno())
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise RefusedError(f"the gzip input is damaged: {error}", do="check it with gzip --test") from error


def _write_copy(copy: BinaryIO, block: bytes, *, target: Path, source: BufferedReader | None) -> None:
    """Raises `DiskError` saying how much room the copy needs, as far as the size of a plain `source` tells it."""
    rest = memoryview(block)
    try:
        while rest:
            rest = rest[copy.write(rest) :]
    except OSError as error:
        refused = write_refused(error, what=_COPY, path=target)
        if refused.is_full:
            facts = None if source is None else os.fstat(source.fileno())
            is_plain = facts is not None and stat.S_ISREG(facts.st_mode)
            size = f"{facts.st_size:,}" if facts and is_plain else f"more than {copy.tell() + len(rest):,}"
            refused.do = f"make room for {size} bytes, and give the same command and input again"
        raise refused from error


def check_same_as_spooled(source: BufferedReader, copy: Path) -> None:
    """Read all of `source` and raise `RefusedError` unless it equals the spooled `copy` byte for byte."""
    with copy.open("rb") as file:
        same = all(block == file.read(len(block)) for block in _read_blocks(source)) and not file.read(1)
    if not same:
        raise RefusedError(
            "the input differs from what this job has read", where=str(copy), do="start a new job with --fresh"
        )


def _is_packed(source: BufferedReader) -> bool:
    return source.peek(len(_GZIP)).startswith(_GZIP)


def _read_blocks(source: BufferedReader) -> Iterator[bytes]:
    packed = _is_packed(source)
    stream = gzip.GzipFile(fileobj=source, mode="rb") if packed else source
    while block := stream.read(BLOCK_BYTES):
        yield block


def open_stdin() -> BufferedReader:
    """Standard input as bytes; closing it leaves the descriptor open."""
    return open(0, "rb", closefd=False)


def private(path: str, flags: int) -> int:
    """An opener for `open`: a new file gets mode 0600."""
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def create_private(path: Path, *, buffering: int = -1) -> BinaryIO:
    """The new file `path`, open for writing, mode 0600."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    return os.fdopen(descriptor, "wb", buffering=buffering)


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable: a new or renamed file is only then there after a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
