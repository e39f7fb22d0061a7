"""The input before a line is read: can it be read twice, is it still the same; and how a job's own files are made.

Standard input, pipes and gzip files are copied ("spooled") into the job directory, so that a stopped job can go on.
"""

import os
import stat
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple

from common.errors import RefusedError

STDIN = "-"
BLOCK_BYTES = 64 * 1024
MOST_BLOCKS = 64
GZIP = b"\x1f\x8b"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_OTHER_PACKING = {b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"PK\x03\x04": "zip"}

Kind = Literal["plain", "packed", "piped"]
"""Of an input: read where it lies, unpacked first, or copied as it comes."""


class Fingerprint(NamedTuple):
    """What tells a changed input: size, time of change, and hashes of at most 65 blocks of 64 KiB evenly spread.

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
    """The fingerprint of the file at `path`; reads some 4 MiB."""
    with path.open("rb") as file:
        facts = os.fstat(file.fileno())
        return Fingerprint(facts.st_size, facts.st_mtime_ns, hash_blocks(file.fileno(), size=facts.st_size, known={}))


def hash_blocks(descriptor: int, *, size: int, known: dict[int, str]) -> tuple[str, ...]:
    """Hashes of blocks evenly spread over the first `size` bytes; `known` keeps those that stay as a file grows."""
    hashes = []
    for offset in _block_offsets(size):
        block_bytes = min(BLOCK_BYTES, size - offset)
        hash_ = known.get(offset) or blake2b(os.pread(descriptor, block_bytes, offset), digest_size=8).hexdigest()
        hashes.append(hash_)
        if block_bytes == BLOCK_BYTES and offset % BLOCK_BYTES == 0:
            known[offset] = hash_
    return tuple(hashes)


def _block_offsets(size: int) -> Iterator[int]:
    """Every block, or every 2nd, 4th, ... one and the last 64 KiB: most of them are also those of a longer file."""
    step = BLOCK_BYTES
    while size > step * MOST_BLOCKS:
        step *= 2
    yield from range(0, size, step)
    if step > BLOCK_BYTES:
        yield size - BLOCK_BYTES


def check_input(path: Path) -> Kind:
    """Refuse what can never be an input; returns how `path` is read.

    Raises `RefusedError`: no such file, a folder, unreadable, UTF-16, or packed in another way.
    """
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise RefusedError("the input is a folder", where=str(path), do="name a JSONL file")
        if not stat.S_ISREG(mode):
            return "piped"
        with path.open("rb") as file:
            head = file.read(8)
    except OSError as error:
        raise RefusedError(f"the input cannot be read: {error.strerror}", where=str(path)) from error
    if head.startswith(_UTF_16):
        raise RefusedError("the input is UTF-16", where=str(path), do="convert it: iconv -f UTF-16 -t UTF-8")
    for magic, name in _OTHER_PACKING.items():
        if head.startswith(magic):
            raise RefusedError(f"the input is packed by {name}", where=str(path), do="unpack it first, or use gzip")
    return "packed" if head.startswith(GZIP) else "plain"


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
