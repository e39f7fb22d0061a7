"""Which custom_ids a job's lines have had so far: in memory, checked against the journal where one seems to come again.

An index over the hashes in the journal would be hit at random: past a million lines, each new one rewrites a page.
"""

from collections.abc import Iterable

from producer.id_set import IdSet
from producer.journal_reader import JournalReader

RECALL_ROWS = 16_384
"""Taken in at a time: what comes in meanwhile waits for a few hundredths of a second."""


class KnownIds:
    """The ids of one job, for one collector; those that the journal had before must be recalled first."""

    def __init__(self, journal: JournalReader) -> None:
        self._journal = journal
        self._ids = IdSet()
        self._new: set[bytes] = set()
        """Of lines that the journal does not have yet, whole."""
        self.before = journal.next_seq()
        """Lines that the journal had at the start."""
        self._recalled = 0

    @property
    def missing(self) -> int:
        """How many of these are still to be recalled."""
        return self.before - self._recalled

    def recall(self) -> int:
        """Take in the ids of some of them; returns of how many lines."""
        first, self._recalled = self._recalled, min(self.before, self._recalled + RECALL_ROWS)
        for seq, id_hash in self._journal.id_hashes(first, self._recalled):
            self._ids.add(id_hash, seq)
        return self._recalled - first

    def take(self, id_hash: bytes, seq: int) -> bool:
        """Whether no earlier line has this id; from now on the line `seq` has it. Blocks until all are recalled."""
        while self.missing:
            self.recall()
        if alike := self._ids.find_or_add(id_hash, seq):
            if id_hash in self._new or any(self._journal.has_id(old, id_hash) for old in alike):
                return False
            self._ids.add(id_hash, seq)
        self._new.add(id_hash)
        return True

    def journaled(self, id_hashes: Iterable[bytes | None]) -> None:
        """The journal has lines with these ids now."""
        self._new.difference_update(id_hashes)
