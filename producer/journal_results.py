"""What a journal says of results: noted once, kept until the ordered file has them for certain, each given its place.

A line that is next when it comes is noted with its place: to add the place later would cost as much again.
"""

import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from common.wire import Result
from producer.journal_rounds import JournalRounds

STRETCH_ROWS = 4096
STRETCH_BYTES = 8 * 1024 * 1024
"""At most so much of the ordered file is held in memory at once (one larger line excepted)."""


_Line = tuple[int, int, bytes]
"""Seq, whether it failed (0 or 1), and the line, without its LF."""


class Stretch(NamedTuple):
    """Consecutive lines of the ordered file, and those of errors.jsonl among them, each with its journaled offset."""

    frontier: int
    """The seq after the last one in it."""
    offset: int
    data: bytes
    error_offset: int
    error_data: bytes


class JournalResults(JournalRounds):
    """The part of a journal that takes results in; what is written, within `Journal.writing`."""

    late_after_s: float | None = None  # the deadline, by the wall clock

    def add_results(self, results: Iterable[Result]) -> list[Result]:
        """Note results, the first of each (seq, round) alone; returns those that are new, and counts all."""
        return self._note(list(results), passing=False)[0]

    def settle(self, results: Iterable[Result]) -> tuple[list[Result], Stretch | None]:
        """Note results as `add_results` does, and give the next consecutive lines their places in the ordered file.

        None where the next one is missing. The bytes may be written once this transaction is committed, and not before.
        """
        fresh, lines = self._note(list(results), passing=True)
        return fresh, self._pass(lines) if lines else None

    def can_pass(self) -> bool:
        """Whether the next line of the ordered file is at hand."""
        return bool(self._one("SELECT 1 FROM pending WHERE seq = ?", self.frontier))

    def forget_pending(self, *, below: int) -> None:
        """Drop lines that the ordered file has, synced."""
        self._connection.execute("DELETE FROM pending WHERE seq < ?", (below,))

    def unsynced(self) -> Iterator[Stretch]:
        """What a crash may have kept from the ordered file: placed, and not known to be synced. In order."""
        low, offset, error_offset = self._unsynced_start()
        while low < self.frontier:
            lines = self._waiting_lines(low, self.frontier)
            if not lines:
                return
            stretch = _stretch_of(lines, offset=offset, error_offset=error_offset)
            yield stretch
            low, offset = stretch.frontier, offset + len(stretch.data)
            error_offset += len(stretch.error_data)

    def synced_lengths(self) -> tuple[int, int]:
        """Bytes that the ordered file and errors.jsonl must have, whatever happened."""
        _, offset, error_offset = self._unsynced_start()
        return offset, error_offset

    def _note(self, given: list[Result], *, passing: bool) -> tuple[list[Result], list[_Line]]:
        """What of `given` is new, and the lines that get their places by it."""
        fresh = [result for result in given if result.round == self.round]  # one of an earlier round has come too late
        self._connection.execute("SAVEPOINT results")
        try:
            lines = self._insert(fresh, passing=passing)
        except sqlite3.IntegrityError:  # rare: some are known
            self._connection.execute("ROLLBACK TO results")
            fresh = self._unknown(fresh)
            lines = self._insert(fresh, passing=passing)
        self._connection.execute("RELEASE results")
        self.counts.add(fresh, late=self.late_after_s is not None and time.time() > self.late_after_s)
        self.counts.duplicates += len(given) - len(fresh)
        return fresh, lines

    def _insert(self, fresh: Sequence[Result], *, passing: bool) -> list[_Line]:
        """Raises `sqlite3.IntegrityError`: one of them is known, or there twice."""
        by_seq = {result.seq: result for result in fresh}
        lines = self._next_lines(by_seq) if passing and not self.round else []
        places = _places_of(lines, offset=self._out_bytes)
        many = self._connection.executemany
        many(
            "INSERT INTO result VALUES (?, ?, ?, ?, ?, ?, ?)",
            [(*result[:5], *places[result.seq]) for result in fresh if result.seq in places],
        )
        many(
            "INSERT INTO result VALUES (?, ?, ?, ?, ?, NULL, NULL)",
            [result[:5] for result in fresh if result.seq not in places],
        )
        many(
            "UPDATE result SET out_offset = ?, out_length = ? WHERE seq = ? AND round = 0",
            [(*place, seq) for seq, place in places.items() if seq not in by_seq],
        )
        many(  # no bytes and no bool: sqlite3 would look for an adapter of each, which takes as long as the row
            f"INSERT INTO {'renewed' if self.round else 'pending'} VALUES (?, ?, ?)",
            [(result.seq, int(result.status != 200), bytearray(result.line)) for result in fresh],
        )
        return lines

    def _next_lines(self, fresh: Mapping[int, Result]) -> list[_Line]:
        """Consecutive lines from the frontier on, of `fresh` and of those that came before."""
        lines: list[_Line] = []
        size, seq = 0, self.frontier
        ask = "SELECT seq, failed, line FROM pending WHERE seq >= ? ORDER BY seq"
        earlier = self._connection.execute(ask, (seq,))
        waiting = next(earlier, None)
        while len(lines) < STRETCH_ROWS and size < STRETCH_BYTES:
            if waiting is not None and waiting[0] == seq:
                lines.append(waiting)
                waiting = next(earlier, None)
            elif (result := fresh.get(seq)) is not None:
                lines.append((seq, int(result.status != 200), result.line))
            else:
                break
            size += len(lines[-1][2])
            seq += 1
        earlier.close()
        return lines

    def _unknown(self, results: Iterable[Result]) -> list[Result]:
        """The first of each seq that the journal does not have in this round."""
        ask = "SELECT 1 FROM result WHERE seq = ? AND round = ?"
        first = {result.seq: result for result in reversed(list(results))}
        return [result for result in reversed(first.values()) if not self._one(ask, result.seq, result.round)]

    def _pass(self, lines: Sequence[_Line]) -> Stretch:
        """Move the frontier over `lines`, which have their places."""
        stretch = _stretch_of(lines, offset=self._out_bytes, error_offset=self._error_bytes)
        self._out_bytes += len(stretch.data)
        self._error_bytes += len(stretch.error_data)
        self.frontier = stretch.frontier
        self._connection.execute(
            "UPDATE checkpoint SET frontier = ?, out_bytes = ?, error_bytes = ?",
            (self.frontier, self._out_bytes, self._error_bytes),
        )
        return stretch

    def _unsynced_start(self) -> tuple[int, int, int]:
        low, data, errors = self._connection.execute(
            "SELECT coalesce(min(seq), ?), coalesce(sum(length(line) + 1), 0),"
            " coalesce(sum(CASE WHEN failed THEN length(line) + 1 END), 0) FROM pending WHERE seq < ?",
            (self.frontier, self.frontier),
        ).fetchone()
        return low, self._out_bytes - data, self._error_bytes - errors

    def _waiting_lines(self, low: int, below: int) -> list[_Line]:
        """The next of them, in order."""
        lines: list[_Line] = []
        size = 0
        ask = f"SELECT seq, failed, line FROM pending WHERE seq >= ? AND seq < ? ORDER BY seq LIMIT {STRETCH_ROWS}"
        for line in self._connection.execute(ask, (low, below)):
            lines.append(line)
            size += len(line[2])
            if size >= STRETCH_BYTES:
                break
        return lines


def _places_of(lines: Iterable[_Line], *, offset: int) -> dict[int, tuple[int, int]]:
    """Seq -> offset and length in the ordered file, LF included."""
    places: dict[int, tuple[int, int]] = {}
    for seq, _failed, line in lines:
        places[seq] = offset, len(line) + 1
        offset += len(line) + 1
    return places


def _stretch_of(lines: Sequence[_Line], *, offset: int, error_offset: int) -> Stretch:
    data = b"\n".join([line for _seq, _failed, line in lines]) + b"\n"
    errors = b"".join([line + b"\n" for _seq, failed, line in lines if failed])
    return Stretch(lines[-1][0] + 1, offset, data, error_offset, errors)
