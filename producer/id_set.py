"""The custom_ids of a job in memory, about 11 bytes each: which earlier lines may have the same one.

An id's hash is cut down to 44 bits here: 12 choose one of 4,096 sorted arrays, 32 stand in it above the seq. Among ten
million different ids a few agree in so many bits, so what is found is only likely; the journal has the whole hash.
"""

from array import array
from bisect import bisect_left

_ARRAY_BITS = 12
_KEY_BITS = 32
_KEY_BYTES = 6
"""Of the hash, what both are taken from: 48 bits, of which the lowest four are not used."""
_SPARE_BITS = _KEY_BYTES * 8 - _ARRAY_BITS - _KEY_BITS
_SEQ_BITS = 32
"""Room for four billion lines."""
_SEQ_MASK = (1 << _SEQ_BITS) - 1


class IdSet:
    """Hashes of custom_ids, each with the seq of the line that has it."""

    def __init__(self) -> None:
        self._arrays = [array("Q") for _ in range(1 << _ARRAY_BITS)]

    def add(self, id_hash: bytes, seq: int) -> None:
        """Note that the line `seq` has the id of `id_hash`."""
        entries, low = self._place(id_hash)
        entries.insert(bisect_left(entries, low), low | seq)

    def find_or_add(self, id_hash: bytes, seq: int) -> list[int]:
        """The seqs of lines that may have the id of `id_hash`, never one too few; where there is none, `seq` has it."""
        entries, low = self._place(id_hash)
        first = at = bisect_left(entries, low)
        while at < len(entries) and entries[at] - low <= _SEQ_MASK:
            at += 1
        if first == at:
            entries.insert(first, low | seq)
            return []
        return [entry & _SEQ_MASK for entry in entries[first:at]]

    def _place(self, id_hash: bytes) -> "tuple[array[int], int]":
        """The array for `id_hash`, and the lowest entry that it could have there."""
        bits = int.from_bytes(id_hash[:_KEY_BYTES]) >> _SPARE_BITS
        return self._arrays[bits >> _KEY_BITS], (bits & ((1 << _KEY_BITS) - 1)) << _SEQ_BITS
