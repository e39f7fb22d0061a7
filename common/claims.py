"""Claims on micro-batches: typed calls of the scripts, where work passes from a collector to a worker and back.

What each script does stands on top of its Lua file, what must always hold in docs/redis-contract.md. Every call is safe
to repeat after a lost reply. `redis.RedisError` passes through; what to do about it is the caller's.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import redis

from common import keys, script_calls
from common.claim_types import (
    AskAnswer,
    Claimed,
    CloseAnswer,
    Entry,
    ExpireAnswer,
    Look,
    Lost,
    MarkAnswer,
    Offer,
    OfferAnswer,
    Publication,
    PublishAnswer,
    Renewal,
    Seen,
    Stage,
)
from common.script_calls import Call

LOOK_SLICE = 512
"""Micro-batches in one slice of a look: all 4,096 at once would hold the server 15 ms."""
READ_COUNT = 16
"""Entries read at once, at most 1 MiB each."""
_PIN = "digest:"


class Claims:
    """The scripts over one client; holds no state, any number of threads may share it."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client

    # ---- the collector's side: each write carries its epoch, and a stale one changes nothing

    def own(
        self,
        job: str,
        *,
        epoch: int,
        state: str,
        mb_high: int,
        digests: Mapping[str, str],
        manifest: str,
        mixed: bool = False,
    ) -> bool:
        """Take the job under `epoch`; the same epoch again is fine. False: this journal is an old copy.

        `manifest` must not be empty. Pins that Redis has and `digests` lacks stay. `mixed`: any build may claim, from
        the first claim on.
        """
        if not manifest:
            raise ValueError("a job is taken with its manifest")
        pins = {_PIN + model: digest for model, digest in digests.items()}
        return self._own(job, epoch, state, mb_high, manifest, pins | ({"mixed": "1"} if mixed else {}))

    def amend(
        self, job: str, *, epoch: int, state: str | None = None, fields: Mapping[str, object] | None = None
    ) -> bool:
        """Set `state` and `fields` (counts, `seen`, `exit`) of the job owned under exactly `epoch`, and its lifetime.

        False, and nothing written: Redis has another epoch, or has forgotten the job.
        """
        return self._own(job, epoch, state or "", 0, "", fields or {})

    def state(self, job: str, *, epoch: int, state: str) -> bool:
        """Set the job's state; see `amend`."""
        return self.amend(job, epoch=epoch, state=state)

    def offer(self, job: str, offers: Sequence[Offer], *, epoch: int) -> list[OfferAnswer]:
        """Put micro-batches up. SAME: it is there already; FENCED: another epoch, or Redis forgot the job.

        Raises `redis.OutOfMemoryError` when Redis is full; some of `offers` may then stand.
        """
        return self._each("offer", [self._offer_call(job, offer, epoch) for offer in offers])

    def expire(self, job: str, mb: int, *, epoch: int, token: str, beat: int) -> ExpireAnswer:
        """Take `mb` from its holder, if it is HELD with exactly this token and beat; MOVED if not."""
        where = [keys.info(job), keys.micro_batch(job, mb)]
        return cast(ExpireAnswer, self._word("expire", where, [epoch, token, beat]))

    def mark(self, job: str, mb: int, *, epoch: int, mask: int) -> MarkAnswer:
        """Say that the positions in `mask` have results in the journal; the holder hears it when it renews."""
        where = [keys.info(job), keys.micro_batch(job, mb)]
        return cast(MarkAnswer, self._word("mark", where, [epoch, _bytes_of(mask)]))

    def close(self, job: str, mbs: Sequence[int], *, epoch: int) -> list[CloseAnswer]:
        """Take micro-batches off the table, whoever holds them."""
        info, open_set = keys.info(job), keys.open_set(job)
        return self._each("close", [Call([info, open_set, keys.micro_batch(job, mb)], [epoch, mb]) for mb in mbs])

    def look(self, job: str, *, count: int = LOOK_SLICE) -> Look:
        """The job as Redis has it; every micro-batch open at the first slice, except what closes before its own slice.

        A member is reported once. Slices are not one moment: decide only what a compare-and-set then checks.
        """
        where = [keys.info(job), keys.open_set(job), keys.results(job)]
        pairs, length, last_id, rows, rest = self._run("look", where, [keys.prefix(job), count])
        for start in range(0, len(rest), count):
            rows += self._run("look", where, [keys.prefix(job), count, *rest[start : start + count]])
        texts = [text.decode(errors="replace") for text in pairs]
        info = dict(zip(texts[::2], texts[1::2], strict=True))
        digests = {name.removeprefix(_PIN): info.pop(name) for name in list(info) if name.startswith(_PIN)}
        epoch = info.pop("epoch", None)
        return Look(
            epoch=int(epoch) if epoch and epoch.isdecimal() else None,
            state=info.pop("state", None),
            want=info.pop("want", "") or None,
            digests=digests,
            stream_length=length,
            last_id=last_id.decode(),
            micro_batches={int(row[0]): _seen_of(row) for row in rows},
            fields=info,
        )

    def stages(self, job: str, mbs: Sequence[int]) -> list[Stage | None]:
        """Where each of a few micro-batches is, in one round trip; None: it has no hash. Cheaper than a look."""
        with self._client.pipeline(transaction=False) as pipe:
            for mb in mbs:
                pipe.hget(keys.micro_batch(job, mb), "st")
            found = cast(list[bytes | None], pipe.execute())
        return [None if st is None else cast(Stage, st.decode()) for st in found]

    def entries(self, job: str, *, after: str = "-", count: int = READ_COUNT) -> list[Entry]:
        """The oldest entries of the results stream beyond id `after`, at most `count`; does not wait for any."""
        start = after if after == "-" else "(" + after
        found = cast(Any, self._client.xrange(keys.results(job), min=start, count=count))
        return [_entry_of(entry_id, fields) for entry_id, fields in found]

    def drop_entries(self, job: str, ids: Sequence[str]) -> None:
        """Delete entries from the stream; call it only once the journal has them."""
        if ids:
            self._client.xdel(keys.results(job), *ids)

    def refresh(self, job: str, mbs: Sequence[int]) -> None:
        """Start the lifetime of all of a job's keys anew; call it hourly. Keys that are not there stay so."""
        names = [keys.info(job), keys.open_set(job), keys.results(job), *(keys.micro_batch(job, mb) for mb in mbs)]
        with self._client.pipeline(transaction=False) as pipe:
            for name in names:
                pipe.expire(name, keys.JOB_LIFETIME_S)
            pipe.execute()

    def finish(self, job: str, *, epoch: int, fields: Mapping[str, object] | None = None) -> bool:
        """Set the job `done`, unlink its keys, keep `info` for an hour. False: another epoch, nothing done."""
        if not self._own(job, epoch, "done", 0, "", fields or {}, keys.DONE_LIFETIME_S):
            return False
        members = cast(Any, self._client.smembers(keys.open_set(job)))
        if "FENCED" in self.close(job, [int(member) for member in members], epoch=epoch):
            return False
        self._client.unlink(keys.open_set(job), keys.results(job))
        return True

    # ---- the worker's side: each write carries its token

    def claim(self, job: str, mb: int, *, token: str, worker: str, model: str, digest: str) -> Claimed:
        """Take `mb` under `token` (32 hex digits, one a claim, kept over repeats of the call)."""
        where = [keys.info(job), keys.micro_batch(job, mb)]
        reply = self._run("claim", where, [token, worker, model, digest])
        if reply[0] != b"GO":
            return Claimed(reply[0].decode(), None, 0, 0)
        return Claimed("GO", reply[1], _mask_of(reply[2]), int(reply[3]))

    def renew(self, job: str, holds: Sequence[tuple[int, str]]) -> Renewal:
        """Keep holds, given as (micro-batch, token)."""
        where = [keys.info(job), *(keys.micro_batch(job, mb) for mb, _ in holds)]
        state, *answers = self._run("renew", where, [token for _, token in holds])
        return Renewal(state.decode(), [_hold_of(answer) for answer in answers])

    def arm(self, job: str, mb: int, *, token: str) -> bool:
        """Say that the run of a suspect alone begins. False: not held by `token`."""
        return self._word("arm", [keys.micro_batch(job, mb)], [token]) == "OK"

    def publish(self, job: str, publications: Sequence[Publication]) -> list[PublishAnswer]:
        """Hand results over. FULL: nothing is missing from the micro-batch; DUP: all of it had been published.

        REFUSED: no longer this token's; keep the results and claim again under the same token, or give up.
        """
        info, results = keys.info(job), keys.results(job)
        calls = [
            Call([info, results, keys.micro_batch(job, mb)], [mb, token, _bytes_of(mask), blob, keys.JOB_LIFETIME_S])
            for mb, token, mask, blob in publications
        ]
        return self._each("publish", calls)

    def release(self, job: str, mb: int, *, token: str) -> bool:
        """Give `mb` back. False: it was not held by `token` (any more)."""
        return self._word("release", [keys.micro_batch(job, mb)], [token]) == "OK"

    # ---- anybody

    def states(self, jobs: Sequence[str]) -> list[str]:
        """The state of each of `jobs`; NOJOB where Redis knows no such job."""
        with self._client.pipeline(transaction=False) as pipe:
            for job in jobs:
                pipe.hget(keys.info(job), "state")
            found = pipe.execute() if jobs else []
        return ["NOJOB" if state is None else state.decode() for state in found]

    def ask(self, job: str, want: str) -> AskAnswer:
        """Leave a wish, `<verb>:<nonce>`, for the job's collector. CANCEL: one to cancel it stands unheard."""
        return cast(AskAnswer, self._word("ask", [keys.info(job)], [want]))

    # ---- inside

    def _own(
        self,
        job: str,
        epoch: int,
        state: str,
        mb_high: int,
        manifest: str,
        fields: Mapping[str, object],
        lifetime_s: int = keys.JOB_LIFETIME_S,
    ) -> bool:
        pairs = [str(part) for pair in fields.items() for part in pair]
        return self._word("own", [keys.info(job)], [epoch, state, mb_high, manifest, lifetime_s, *pairs]) == "OK"

    def _offer_call(self, job: str, offer: Offer, epoch: int) -> Call:
        if not 0 <= offer.got < (1 << offer.n) - 1:
            raise ValueError(f"micro-batch {offer.mb}: {offer.n} requests, got {offer.got:#x}: nothing to run")
        got = offer.got.to_bytes((offer.n + 7) // 8, "little")
        return Call(
            [keys.info(job), keys.open_set(job), keys.micro_batch(job, offer.mb)],
            [epoch, offer.mb, offer.n, got, offer.z, offer.dlv, offer.kind, keys.JOB_LIFETIME_S],
        )

    def _run(self, name: str, where: Sequence[str], args: Sequence[str | bytes | int]) -> Any:
        return script_calls.run(self._client, name, keys=where, args=args)

    def _word(self, name: str, where: Sequence[str], args: Sequence[str | bytes | int]) -> str:
        return cast(str, self._run(name, where, args).decode())

    def _each(self, name: str, calls: Sequence[Call]) -> list[Any]:
        return [reply.decode() for reply in script_calls.run_all(self._client, name, calls)]


def _bytes_of(mask: int) -> bytes:
    return mask.to_bytes((mask.bit_length() + 7) // 8, "little")


def _mask_of(packed: bytes) -> int:
    return int.from_bytes(packed, "little")


def _hold_of(answer: bytes) -> int | Lost:
    return _mask_of(answer[1:]) if answer[:1] == b"=" else cast(Lost, answer[1:].decode())


def _seen_of(row: Sequence[bytes | None]) -> Seen:
    _, st, token, beat, got, armed, worker = (value or b"" for value in row)
    return Seen(
        st=cast(Stage, st.decode()),
        token=token.decode() or None,
        beat=int(beat),
        got=_mask_of(got),
        armed=bool(armed),
        worker=worker.decode() or None,
    )


def _entry_of(entry_id: bytes, fields: Mapping[bytes, bytes]) -> Entry:
    number = fields.get(b"mb", b"")
    return Entry(entry_id.decode(), int(number) if number.isdigit() else None, fields.get(b"z", b""))
