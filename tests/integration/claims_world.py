"""A world around one job: the real Redis, its model, the journal, and the invariants checked after every call.

The numbers of the invariants are those of docs/redis-contract.md.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import redis

from common import keys
from common.claim_types import Look, Offer, Seen
from common.claims import Claims
from tests.integration.claims_model import Table, batch_of

JOB = "world"
MODEL = "m"
REMEMBERED = 8
"""Calls back that a cut of the server's log may reach."""


@dataclass
class Journal:
    """What is known for certain."""

    epoch: int = 0
    rows: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """Micro-batch -> its seqs; never changed (I2)."""
    open: set[int] = field(default_factory=set)
    results: dict[int, str] = field(default_factory=dict)
    """Seq -> the token that brought its result; first wins (I1)."""
    deliveries: dict[int, int] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)

    def got(self, mb: int) -> int:
        """The positions of `mb` whose seqs have results."""
        return sum(1 << i for i, seq in enumerate(self.rows[mb]) if seq in self.results)

    def complete(self, mb: int) -> bool:
        """Whether every seq of `mb` has a result."""
        return all(seq in self.results for seq in self.rows[mb])

    def offer(self, mb: int) -> Offer:
        """`mb` as it is put up now."""
        return Offer(mb, len(self.rows[mb]), self.got(mb), b"payload %d" % mb, 1 + self.deliveries[mb], "normal")


@dataclass
class Snapshot:
    """Redis at one moment: a prefix of its log."""

    table: Table
    dumps: dict[str, bytes]
    holders: dict[int, str]
    spoiled: set[tuple[int, int]]


class World:
    """Every call goes to Redis and to the model, which must agree in the answer and in all that is held."""

    def __init__(self, client: redis.Redis) -> None:
        self.client = client
        self.claims = Claims(client)
        self.table = Table()
        self.journal = Journal()
        self.holders: dict[int, str] = {}
        """Micro-batch -> the one token that may publish to it, kept from answers alone."""
        self.granted: set[tuple[int, str]] = set()
        """Micro-batch and token of every claim that ever succeeded."""
        self.spoiled: set[tuple[int, int]] = set()
        """Micro-batch and seq of results that could not be read and were dropped."""
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.snapshots: deque[Snapshot] = deque(maxlen=REMEMBERED)
        self.flush()

    def do(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """One call of `Claims`, checked; returns its answer."""
        before = self.table.copy()
        expected = getattr(self.table, name)(*args, **kwargs)
        answer = getattr(self.claims, name)(JOB, *args, **kwargs)
        assert answer == expected, f"{name}: Redis answers {answer}, the model {expected}"
        if (
            name != "drop_entries"
        ):  # ids begin with the server's milliseconds: after a cut, one can be given twice in a test
            self.calls.append((name, args, kwargs))
        self._agree()
        self._check_publisher(name, args, kwargs, answer)
        self._check_freed(name, args, kwargs, before)
        if "epoch" in kwargs and name != "own" and before.info.get("epoch") != str(kwargs["epoch"]):
            assert self.table == before, f"I13: {name} under a stale epoch changed something"
        self._remember()
        return answer

    def look(self) -> Look:
        """A look in small slices, which must show what Redis holds."""
        look = self.claims.look(JOB, count=2)
        info = dict(self.table.info)
        epoch, state, want = info.pop("epoch", None), info.pop("state", None), info.pop("want", None)
        digests = {name[7:]: info.pop(name) for name in list(info) if name.startswith("digest:")}
        batches = self.table.batches.items()
        seen = {mb: Seen(batch.st, batch.tok, batch.beat, batch.got, batch.armed, batch.wk) for mb, batch in batches}
        length, last_id = len(self.table.stream), self.table.ids[-1] if self.table.ids else look.last_id
        assert look == Look(None if epoch is None else int(epoch), state, want, digests, length, last_id, seen, info)
        return look

    def repeat(self, number: int) -> None:
        """An earlier call comes once more, late."""
        name, args, kwargs = self.calls[number % len(self.calls)]
        self.do(name, *args, **kwargs)

    def flush(self) -> None:
        """Redis loses everything."""
        self.client.flushall(asynchronous=False)
        self.table, self.holders, self.spoiled = Table(), {}, set()
        self._agree()
        self._remember()

    def cut(self, calls: int) -> None:
        """Redis comes back as it was some calls ago."""
        snapshot = self.snapshots[-1 - calls % len(self.snapshots)]
        with self.client.pipeline() as pipe:
            pipe.flushall(asynchronous=False)
            for key, dump in snapshot.dumps.items():
                pipe.restore(key, keys.JOB_LIFETIME_S * 1000, dump)
            pipe.execute()
        self.table, self.holders, self.spoiled = snapshot.table.copy(), dict(snapshot.holders), set(snapshot.spoiled)
        self._agree()
        self._remember()

    def _agree(self) -> None:
        """Redis holds exactly what the model says, and I5."""
        names = self._names()
        with self.client.pipeline(transaction=False) as pipe:
            pipe.hgetall(names[0])
            pipe.smembers(names[1])
            pipe.xrange(names[2])
            for name in names[3:]:
                pipe.hgetall(name)
            info, members, entries, *hashes = pipe.execute()
        table = self.table
        table.ids = [entry_id.decode() for entry_id, _ in entries]
        assert {name.decode(): value.decode() for name, value in info.items()} == table.info
        assert [(int(entry[b"mb"]), entry[b"z"]) for _, entry in entries] == table.stream
        found = {mb: batch_of(fields) for mb, fields in zip(self.journal.rows, hashes, strict=True) if fields}
        assert found == table.batches
        assert {int(member) for member in members} == set(found), "open names other micro-batches than have a hash"
        self._check_got()

    def _remember(self) -> None:
        names = self._names()
        with self.client.pipeline(transaction=False) as pipe:
            for name in names:
                pipe.dump(name)
            dumps = {name: dump for name, dump in zip(names, pipe.execute(), strict=True) if dump is not None}
        self.snapshots.append(Snapshot(self.table.copy(), dumps, dict(self.holders), set(self.spoiled)))

    def _names(self) -> list[str]:
        first = [keys.info(JOB), keys.open_set(JOB), keys.results(JOB)]
        return first + [keys.micro_batch(JOB, mb) for mb in self.journal.rows]

    def _check_got(self) -> None:
        accounted = {(mb, seq) for mb, blob in self.table.stream for seq in seqs_in(blob)} | self.spoiled
        for mb, batch in self.table.batches.items():
            for position, seq in enumerate(self.journal.rows[mb]):
                if batch.got >> position & 1 and seq not in self.journal.results:
                    assert (mb, seq) in accounted, f"I5: micro-batch {mb} has got seq {seq}, and nobody has its result"

    def _check_publisher(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], answer: Any) -> None:
        """I6, from answers alone: who publishes is whom the last claim let in, and nobody has been let in since."""
        if name == "claim" and answer.answer == "GO":
            holder = self.holders.setdefault(args[0], kwargs["token"])
            assert holder == kwargs["token"], f"I6: micro-batch {args[0]} given to two tokens"
            self.granted.add((args[0], holder))
        elif (name == "release" and answer) or (name == "expire" and answer == "OK"):
            del self.holders[args[0]]
        elif name == "close":
            for mb, word in zip(args[0], answer, strict=True):
                if word == "OK":
                    self.holders.pop(mb, None)
        elif name == "publish":
            for publication, word in zip(args[0], answer, strict=True):
                allowed = self.holders.get(publication.mb) == publication.token
                assert word == "REFUSED" or allowed, f"I6: {publication.mb} took results of a token not let in"

    def _check_freed(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], before: Table) -> None:
        """I7: HELD becomes READY only by its token, or by its token and beat."""
        for mb, was in before.batches.items():
            now = self.table.batches.get(mb)
            if now is None or (was.st, now.st) != ("HELD", "READY"):
                continue
            assert name in ("release", "expire"), f"I7: {name} freed micro-batch {mb}"
            assert args[0] == mb, f"I7: a call for {args[0]} freed micro-batch {mb}"
            assert kwargs["token"] == was.tok, f"I7: micro-batch {mb} freed by another token"
            assert kwargs.get("beat", was.beat) == was.beat, f"I7: micro-batch {mb} freed though it moved"


def blob_of(token: str, seqs: list[int]) -> bytes:
    """Results of `seqs` brought by `token`."""
    return (token + ":" + ",".join(map(str, seqs))).encode()


def seqs_in(blob: bytes) -> list[int]:
    """The seqs whose results are in `blob`."""
    return [int(seq) for seq in blob.decode().partition(":")[2].split(",")]


def token_in(blob: bytes) -> str:
    """The token that brought `blob`."""
    return blob.decode().partition(":")[0]
