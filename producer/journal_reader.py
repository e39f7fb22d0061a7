"""Questions to a job's journal: where it stands, what a request came to. Asked by collector, `get`, `status`, audits.

Opens the SQLite file for reading only, also while a collector writes it; `journal` adds the writing.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import msgpack
import orjson

from common.errors import RefusedError
from producer.counts import Counts
from producer.journal_schema import open_for_reading
from producer.reader import hash_id
from producer.steering import JobState, Steering
from producer.suspects import Loss


class Checkpoint(NamedTuple):
    """Where a job stands."""

    epoch: int
    frontier: int
    """Lowest seq without a place in the ordered file."""
    out_bytes: int
    """Length of the ordered file below the frontier."""
    error_bytes: int
    input_offset: int
    input_line: int
    input_seq: int
    mb_high: int
    digests: dict[str, str]
    """Model -> the digest pinned by the job's first claim of it; empty: any."""
    counts: Counts
    state: JobState
    exit_code: int | None
    steering: Steering
    round: int
    """Raised by one by each rerun."""
    shown: int
    """The round whose places these are; below `round` while a rerun runs."""


class MicroBatchRow(NamedTuple):
    """One micro-batch; `seqs`, `kind` and `payload_digest` never change."""

    mb: int
    round: int
    model: str
    kind: Literal["normal", "solo"]
    seqs: tuple[int, ...]
    payload_digest: bytes
    payload_bytes: int
    fed_at: float
    deliveries: int
    """Holds lost so far."""
    repairs: int


class Place(NamedTuple):
    """Where one request's line stands in the input."""

    seq: int
    line: int
    offset: int
    length: int


class JournalReader:
    """A journal opened for questions."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @classmethod
    def open(cls, path: Path) -> Self:
        """The journal at `path`. Raises `RefusedError` when there is none."""
        return cls(open_for_reading(path))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; nothing committed is lost."""
        self._connection.close()

    def checkpoint(self) -> Checkpoint:
        """Where the job stands."""
        row = self._one(
            "SELECT epoch, frontier, out_bytes, error_bytes, input_offset, input_line, input_seq, mb_high,"
            " digests, counts, state, exit_code, steering, round, shown FROM checkpoint"
        )
        digests, counts, steering = orjson.loads(row[8]), Counts.from_json(row[9]), Steering.from_json(row[12])
        return Checkpoint._make((*row[:8], digests, counts, *row[10:12], steering, *row[13:]))

    def epoch_now(self) -> int:
        """The epoch in the file: of the newest collector there ever was."""
        return int(self._one("SELECT epoch FROM checkpoint")[0])

    def find(self, custom_id: str) -> int | None:
        """The seq of the line that has `custom_id`, of those fed so far. Reads them all: seconds for ten million."""
        found = self._one("SELECT seq FROM request WHERE id_hash = ?", hash_id(custom_id))
        return int(found[0]) if found else None

    def result_line(self, seq: int, *, output: Path) -> bytes | None:
        """The result line of `seq` without its LF, None while it has none; `output` is the ordered file."""
        while True:
            self._connection.execute("BEGIN")  # one moment: a line waits here, or is in the file and synced
            try:
                is_new, shown = self._one(
                    "SELECT 0 < round AND round = shown AND state != 'done', shown FROM checkpoint"
                )
                waiting = self._one(
                    "SELECT line FROM renewed WHERE seq = ? UNION ALL SELECT line FROM pending WHERE seq = ?", seq, seq
                )
                place = self._one(
                    "SELECT out_offset, out_length FROM result WHERE seq = ? AND out_offset IS NOT NULL", seq
                )
            finally:
                self._connection.execute("COMMIT")
            if waiting or not place:
                return bytes(waiting[0]) if waiting else None
            line = _read_at([beside(output), output] if is_new else [output], *place)
            if shown == self._one("SELECT shown FROM checkpoint")[0]:  # else the file has been replaced meanwhile
                if line is None:
                    raise RefusedError("the ordered file is shorter than the journal says", where=str(output))
                return line

    def open_micro_batches(self) -> Iterator[tuple[MicroBatchRow, int]]:
        """Each micro-batch under way, with the mask of those positions that have a result."""
        numbers = self._connection.execute("SELECT mb FROM micro_batch WHERE open = 1 ORDER BY mb").fetchall()
        for (mb,) in numbers:
            row = self.micro_batch(mb)
            if row is not None:
                yield row, self.finished(row)

    def micro_batch(self, mb: int) -> MicroBatchRow | None:
        """The micro-batch `mb`, open or closed."""
        row = self._one(
            "SELECT mb, round, model, kind, seqs, payload_digest, payload_bytes, fed_at, deliveries, repairs"
            " FROM micro_batch WHERE mb = ?",
            mb,
        )
        return MicroBatchRow._make((*row[:4], unpack_seqs(row[4]), *row[5:])) if row else None

    def finished(self, row: MicroBatchRow) -> int:
        """The mask of those positions of `row` that have a result."""
        ask = "SELECT 1 FROM result WHERE seq = ? AND round = ?"
        return sum(1 << i for i, seq in enumerate(row.seqs) if self._one(ask, seq, row.round))

    def losses(self, seqs: Iterable[int]) -> dict[int, list[Loss]]:
        """The lost holds in which each of `seqs` was unfinished, those of this round alone: a rerun judges afresh."""
        ask = "SELECT armed, cause FROM loss WHERE seq = ? AND round = (SELECT round FROM checkpoint)"
        return {seq: [Loss(bool(row[0]), row[1]) for row in self._connection.execute(ask, (seq,))] for seq in seqs}

    def next_seq(self) -> int:
        """The seq after the highest one that is settled here; below it some may still be missing."""
        return int(self._one("SELECT coalesce(max(seq) + 1, 0) FROM request")[0])

    def has_request(self, seq: int) -> bool:
        """Whether the request `seq` is settled here: in a micro-batch, or with a result."""
        return bool(self._one("SELECT 1 FROM request WHERE seq = ?", seq))

    def has_id(self, seq: int, id_hash: bytes) -> bool:
        """Whether the request `seq` is settled here and has this custom_id."""
        return bool(self._one("SELECT 1 FROM request WHERE seq = ? AND id_hash = ?", seq, id_hash))

    def id_hashes(self, first: int, below: int) -> Iterator[tuple[int, bytes]]:
        """(seq, id_hash) of the requests from `first` to `below` that have a custom_id of their own, in order."""
        ask = "SELECT seq, id_hash FROM request WHERE seq >= ? AND seq < ? AND id_hash IS NOT NULL ORDER BY seq"
        return iter(self._connection.execute(ask, (first, below)))

    def places(self, seqs: Iterable[int]) -> list[Place]:
        """Where the lines of `seqs` stand in the input, in the order asked."""
        ask = 'SELECT seq, line, "offset", length FROM request WHERE seq = ?'
        return [Place(*self._one(ask, seq)) for seq in seqs]

    def failed_places(self) -> Iterator[tuple[int, int]]:
        """(offset, length) in the ordered file of each result that is not good and has its place, in order."""
        return iter(
            self._connection.execute(
                "SELECT out_offset, out_length FROM result WHERE status != 200 AND out_offset IS NOT NULL ORDER BY seq"
            )
        )

    def _one(self, ask: str, *values: object) -> Any:
        return self._connection.execute(ask, values).fetchone() or ()


def read_checkpoint(path: Path) -> Checkpoint | None:
    """Where the job with the journal at `path` stands; None where there is none, or none that can be read yet."""
    try:
        with JournalReader.open(path) as journal:
            return journal.checkpoint()
    except RefusedError:
        return None


def pack_seqs(seqs: tuple[int, ...]) -> bytes:
    """`seqs` (rising) as differences: mostly one byte each."""
    return bytes(msgpack.packb([seqs[0], *(b - a for a, b in pairwise(seqs))]))


def unpack_seqs(packed: bytes) -> tuple[int, ...]:
    """What `pack_seqs` packed."""
    total, seqs = 0, []
    for step in msgpack.unpackb(packed):
        total += step
        seqs.append(total)
    return tuple(seqs)


def beside(path: Path) -> Path:
    """Where the file `path` is written anew before it takes the other's place."""
    path = path.resolve()
    return path.with_name(path.name + ".new")


def _read_at(paths: Sequence[Path], offset: int, length: int) -> bytes | None:
    """The line there in the first of `paths` that exists, without its LF; None where it is not whole."""
    for path in paths:
        with suppress(FileNotFoundError), path.open("rb") as file:
            file.seek(offset)
            line = file.read(length)
            return line[:-1] if len(line) == length and line.endswith(b"\n") else None
    return None
