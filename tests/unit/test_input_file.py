"""The input before it is read: what is refused, what is spooled, and which changes its fingerprint sees."""

import gzip
import io
import os
from pathlib import Path

import pytest

from common.errors import RefusedError
from producer.input_file import BLOCK_BYTES, MOST_BLOCKS, check_input, take_fingerprint
from producer.spooler import check_same_as_spooled, spool

CONTENT = b'{"custom_id":"a","prompt":"hi"}\n'


def stream(content: bytes) -> io.BufferedReader:
    return io.BufferedReader(io.BytesIO(content))


@pytest.mark.parametrize(
    ("content", "words"),
    [("a\n".encode("utf-16"), "UTF-16"), (b"PK\x03\x04", "zip"), (b"\x28\xb5\x2f\xfd", "zstd"), (b"BZh9", "bzip2")],
)
def test_inputs_that_cannot_be_read_are_refused(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(content)
    with pytest.raises(RefusedError, match=words):
        check_input(path)


def test_what_cannot_be_read_twice_is_to_be_spooled(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(CONTENT)
    assert check_input(path) == "plain"
    path.write_bytes(gzip.compress(CONTENT))
    assert check_input(path) == "packed"
    os.mkfifo(tmp_path / "pipe")
    assert check_input(tmp_path / "pipe") == "piped"


@pytest.mark.parametrize("packed", [CONTENT * 9, gzip.compress(CONTENT * 4) + gzip.compress(CONTENT * 5)])
def test_a_spooled_copy_is_plain_private_and_comparable(tmp_path: Path, packed: bytes) -> None:
    copy = tmp_path / "copy"
    spool(stream(packed), copy)
    assert copy.read_bytes() == CONTENT * 9
    assert copy.stat().st_mode & 0o777 == 0o600
    check_same_as_spooled(stream(packed), copy)
    for other in (b"", CONTENT * 8, CONTENT * 10, b"x" + CONTENT * 9):
        with pytest.raises(RefusedError, match="--fresh"):
            check_same_as_spooled(stream(other), copy)


def test_damaged_gzip_is_refused(tmp_path: Path) -> None:
    whole = gzip.compress(os.urandom(100_000))
    for number, damaged in enumerate((whole[:-20], whole[:5000] + b"xxxx" + whole[5004:])):
        with pytest.raises(RefusedError, match="damaged"):
            spool(stream(damaged), tmp_path / str(number))


@pytest.mark.parametrize("blocks", [0.5, 1, 2.5, MOST_BLOCKS])
def test_up_to_four_mib_every_byte_counts_and_time_does_not(tmp_path: Path, blocks: float) -> None:
    path = tmp_path / "in.jsonl"
    size = int(BLOCK_BYTES * blocks)
    path.write_bytes(os.urandom(size))
    before = take_fingerprint(path)
    os.utime(path, ns=(1, 1))
    assert take_fingerprint(path).same_as(before)
    for offset in {0, size // 2, size - 1}:
        assert _flipped_is_seen(path, offset, mtime_ns=1)


def test_a_large_input_is_sampled_from_end_to_end(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    size = BLOCK_BYTES * MOST_BLOCKS + 1
    path.write_bytes(os.urandom(size))
    before = take_fingerprint(path)
    assert MOST_BLOCKS / 2 < len(before.block_hashes) <= MOST_BLOCKS + 1
    assert _flipped_is_seen(path, 0, mtime_ns=before.mtime_ns)
    assert _flipped_is_seen(path, size - 1, mtime_ns=before.mtime_ns)
    assert take_fingerprint(path).same_as(before)
    os.utime(path, ns=(1, 1))
    assert not take_fingerprint(path).same_as(before)


def _flipped_is_seen(path: Path, offset: int, *, mtime_ns: int) -> bool:
    before = take_fingerprint(path)
    kept = path.read_bytes()
    path.write_bytes(kept[:offset] + bytes([kept[offset] ^ 1]) + kept[offset + 1 :])
    os.utime(path, ns=(mtime_ns, mtime_ns))
    seen = not take_fingerprint(path).same_as(before)
    path.write_bytes(kept)
    os.utime(path, ns=(mtime_ns, mtime_ns))
    return seen
