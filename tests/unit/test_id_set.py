"""Custom_ids in memory: what may have come before, never one too few, and innocent ones that look alike."""

from hashlib import blake2b
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from producer.id_set import IdSet

ALIKE = st.builds(
    lambda head, middle, tail: bytes([0, head, 0, 0, 0, middle]) + tail,
    *[st.integers(0, 2)] * 2,
    st.binary(min_size=10, max_size=10),
)
"""Hashes that mostly agree in what the set keeps of them."""


@given(st.lists(ALIKE, unique=True, max_size=60), st.randoms(use_true_random=False))
def test_every_line_with_this_id_is_found(hashes: list[bytes], order: Random) -> None:
    ids = IdSet()
    seqs = list(range(2**32 - len(hashes), 2**32))
    order.shuffle(seqs)
    for id_hash, seq in zip(hashes, seqs, strict=True):
        ids.add(id_hash, seq)
    for id_hash, seq in zip(hashes, seqs, strict=True):
        alike = {other for known, other in zip(hashes, seqs, strict=True) if _kept(known) == _kept(id_hash)}
        found = ids.find_or_add(id_hash, 0)
        assert seq in found
        assert set(found) == alike
        assert len(found) == len(alike)


def _kept(id_hash: bytes) -> int:
    """The first 44 bits."""
    return int.from_bytes(id_hash[:6]) >> 4


def test_other_ids_are_mostly_not_found() -> None:
    ids = IdSet()
    for seq in range(20_000):
        ids.add(_hash(seq), seq)
    assert [ids.find_or_add(_hash(seq), seq) for seq in range(20_000)] == [[seq] for seq in range(20_000)]
    assert not any(ids.find_or_add(_hash(seq), seq) for seq in range(20_000, 40_000))


def test_an_id_takes_eleven_bytes() -> None:
    ids = IdSet()
    for seq in range(200_000):
        ids.add(_hash(seq), seq)
    size = sum(entries.__sizeof__() for entries in ids._arrays)
    assert size <= 200_000 * 11 + 2**20


def _hash(number: int) -> bytes:
    return blake2b(b"%d" % number, digest_size=16).digest()
