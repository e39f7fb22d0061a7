"""What a journal says of reruns: which requests run again in a higher round, and what the ordered file becomes by it.

A rerun begins in one commit, its new lines gather in `renewed`, and one commit gives them, and all lines behind them,
their new places. Everything else (micro-batches, results, losses) is kept as in the first round, under its number.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from hashlib import blake2b
from typing import NamedTuple

from producer.counts import Counts
from producer.journal_reader import JournalReader, Place
from producer.reader import hash_id
from producer.selection import NEVER_RAN, Selection
from producer.steering import Course

STEP_ROWS = 1024
_SHOWN = "out_offset IS NOT NULL"
"""Condition on a result: of all results of a seq only the one that the ordered file shows has a place."""


NAMED_UNKNOWN = 10


class Wanted(NamedTuple):
    """Requests asked for by their ids."""

    digest: str
    """The same for the same ids, in whatever order."""
    unknown: list[str]
    """The first few that no request has."""
    all_unknown: int


class Chosen(NamedTuple):
    """What a selection comes to."""

    requests: int
    left_out: dict[str, int]
    """Code -> selected lines that never became a request, and so cannot run again."""


class AgainRow(NamedTuple):
    """A request that is to run again: its line in the input, and its line in the ordered file."""

    place: Place
    id_hash: bytes | None
    code: str
    """Of the result that is shown now, as are these:"""
    out_offset: int
    out_length: int

    @property
    def seq(self) -> int:
        """Its number."""
        return self.place.seq


class Renewed(NamedTuple):
    """A new line for the ordered file, and the place of the one that it replaces, each LF included."""

    seq: int
    old_round: int
    old_offset: int
    old_length: int
    length: int


class JournalRounds(JournalReader):
    """The part of a journal that reruns write; everything within `Journal.writing`."""

    counts: Counts
    course: Course
    frontier: int
    round: int
    shown: int
    """The round that the ordered file shows, or will once it is put in its place; the places here are its own."""
    _out_bytes: int
    _error_bytes: int

    def want_ids(self, custom_ids: Iterable[str]) -> Wanted:
        """Narrow what is chosen next to these. One pass over all requests; nothing is written to the file."""
        ask = self._connection.execute
        ask("CREATE TEMP TABLE wanted (id_hash BLOB PRIMARY KEY, custom_id TEXT NOT NULL) WITHOUT ROWID")
        ask("CREATE TEMP TABLE named (seq INTEGER PRIMARY KEY, id_hash BLOB NOT NULL)")
        ask("BEGIN")
        hashed = ((hash_id(each), each) for each in custom_ids)
        self._connection.executemany("INSERT OR IGNORE INTO wanted VALUES (?, ?)", hashed)
        ask(
            "INSERT INTO named SELECT request.seq, request.id_hash FROM request"
            " CROSS JOIN wanted ON wanted.id_hash = request.id_hash"
        )
        ask("COMMIT")
        digest = blake2b(digest_size=16)
        for (id_hash,) in ask("SELECT id_hash FROM wanted ORDER BY id_hash"):
            digest.update(id_hash)
        unknown = "FROM wanted WHERE id_hash NOT IN (SELECT id_hash FROM named)"
        some = ask(f"SELECT custom_id {unknown} ORDER BY custom_id LIMIT {NAMED_UNKNOWN}")
        return Wanted(digest.hexdigest(), [name for (name,) in some], self._one(f"SELECT count(*) {unknown}")[0])

    def choose(self, selection: Selection) -> Chosen:
        """What `selection` comes to, in a job that is done."""
        where, values = selection.condition()
        left_out = self._connection.execute(
            f"SELECT code, count(*) FROM result WHERE {_SHOWN} AND {where} AND {NEVER_RAN} GROUP BY code", values
        ).fetchall()
        (requests,) = self._one(f"SELECT count(*) FROM result WHERE {_SHOWN} AND {where} AND NOT {NEVER_RAN}", *values)
        return Chosen(requests, dict(left_out))

    def begin_round(self, selection: Selection) -> None:
        """Open a job that is done again: what `selection` comes to is to run in the next round."""
        where, values = selection.condition()
        ask = self._connection.execute
        ask("DELETE FROM pending")  # a job that is done has all of it in the ordered file, synced
        ask(f"INSERT INTO again SELECT seq FROM result WHERE {_SHOWN} AND {where} AND NOT {NEVER_RAN}", values)
        self._count_again(-1)
        self.counts.fed -= self.again_left()
        self.round += 1
        steering = replace(self.course.steering, reason="", cancelled=False).counted_from(self.counts)
        self.course = Course("open", steering)
        ask(
            "UPDATE checkpoint SET state = 'open', exit_code = NULL, round = ?, steering = ?",
            (self.round, steering.to_json()),
        )
        ask("INSERT INTO rerun VALUES (?, ?)", (self.round, selection.to_json().decode()))

    def selection(self) -> bytes | None:
        """What the newest rerun has selected, as JSON; None: there was none."""
        found = self._one("SELECT selection FROM rerun WHERE round = ?", self.round)
        return found[0].encode() if found else None

    def again_left(self) -> int:
        """How many requests of the rerun are not yet in a micro-batch."""
        return int(self._one("SELECT count(*) FROM again")[0])

    def again_after(self, seq: int) -> list[AgainRow]:
        """The next of them, in order, some at a time; none: there is none left."""
        rows = self._connection.execute(
            'SELECT seq, line, "offset", length, id_hash, code, out_offset, out_length FROM again'
            f" JOIN request USING (seq) JOIN result USING (seq) WHERE seq > ? AND {_SHOWN} ORDER BY seq LIMIT ?",
            (seq, STEP_ROWS),
        )
        return [AgainRow(Place(*row[:4]), *row[4:]) for row in rows]

    def take_again(self, seqs: Iterable[int]) -> None:
        """Note that these are fed; each must be in a micro-batch or have a result by the end of this transaction."""
        taken = [(seq,) for seq in seqs]
        self._connection.executemany("DELETE FROM again WHERE seq = ?", taken)
        self.counts.fed += len(taken)

    def give_up_round(self, unfinished: Iterable[int]) -> None:
        """Run nothing more of the rerun: what was not fed, and `unfinished` of what was, keep their older results."""
        self.counts.fed += self.again_left()
        self._connection.executemany("INSERT INTO again VALUES (?)", ((seq,) for seq in unfinished))
        self._count_again(+1)
        self._connection.execute("DELETE FROM again")

    def new_lines(self) -> Iterator[tuple[bytes, int, int]]:
        """(new line without LF, offset and length of the old one), in order; nothing may be written meanwhile."""
        return iter(
            self._connection.execute(
                "SELECT renewed.line, out_offset, out_length FROM renewed JOIN result USING (seq)"
                f" WHERE {_SHOWN} ORDER BY seq"
            )
        )

    def show_round(self) -> None:
        """Give all lines their places in the new ordered file: each seq shows its highest finished round."""
        ask, low, shift = self._connection.execute, 0, 0
        for row in self._all_renewed():
            self._shift(low, row.seq, shift)
            ask(
                "UPDATE result SET out_offset = NULL, out_length = NULL WHERE seq = ? AND round = ?",
                (row.seq, row.old_round),
            )
            ask(
                "UPDATE result SET out_offset = ?, out_length = ? WHERE seq = ? AND round = ?",
                (row.old_offset + shift, row.length, row.seq, self.round),
            )
            low, shift = row.seq + 1, shift + row.length - row.old_length
        self._shift(low, self.frontier, shift)
        ask("DELETE FROM renewed")
        self._out_bytes += shift
        (self._error_bytes,) = self._one(
            f"SELECT coalesce(sum(out_length), 0) FROM result WHERE status != 200 AND {_SHOWN}"
        )
        self.shown = self.round
        ask(
            "UPDATE checkpoint SET shown = ?, out_bytes = ?, error_bytes = ?",
            (self.shown, self._out_bytes, self._error_bytes),
        )

    def _count_again(self, sign: int) -> None:
        """Add the shown results of what is in `again` to the counts, or take them from there."""
        found = self._connection.execute(
            f"SELECT status, code, count(*) FROM again JOIN result USING (seq) WHERE {_SHOWN} GROUP BY status, code"
        )
        for status, code, number in found:
            self.counts.add_rows(status, code, sign * number)

    def _all_renewed(self) -> Iterator[Renewed]:
        """In steps: while a step is read, nothing is written."""
        seq = -1
        while True:
            rows = self._connection.execute(
                "SELECT seq, result.round, out_offset, out_length, length(renewed.line) + 1"
                f" FROM renewed JOIN result USING (seq) WHERE seq > ? AND {_SHOWN} ORDER BY seq LIMIT ?",
                (seq, STEP_ROWS),
            ).fetchall()
            if not rows:
                return
            yield from map(Renewed._make, rows)
            seq = rows[-1][0]

    def _shift(self, low: int, high: int, by: int) -> None:
        if by and low < high:
            self._connection.execute(
                f"UPDATE result SET out_offset = out_offset + ? WHERE seq >= ? AND seq < ? AND {_SHOWN}",
                (by, low, high),
            )
