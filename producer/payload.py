"""Payloads: what a worker gets of a micro-batch, packed when it is fed, and again from the input when Redis lost it.

Nothing of a payload is kept on this side: the journal says which lines of the input it holds, and a digest over what
they say tells whether the input is still the one that was fed.
"""

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from io import BytesIO
from typing import Literal, NamedTuple

from common.errors import RefusedError
from common.wire import WIRE_VERSION, MicroBatch, Request, pack_micro_batch
from producer.job_directory import JobDirectory
from producer.journal_reader import JournalReader, MicroBatchRow, Place
from producer.reader import BlankLine, ChooseModel, InputLine, RejectedLine, read_lines


class Packed(NamedTuple):
    """A payload as it stands in Redis, and the digest of what its requests say."""

    z: bytes
    digest: bytes


class Payloads:
    """Packs micro-batches of one job."""

    def __init__(self, directory: JobDirectory) -> None:
        self._spec = directory.spec
        self._input = directory.open_input()

    def close(self) -> None:
        """Close the input."""
        self._input.close()

    def pack(
        self,
        mb: int,
        requests: Sequence[Request],
        *,
        model: str,
        fed_at: float,
        kind: Literal["normal", "solo"] = "normal",
    ) -> Packed:
        """The payload of `requests`; equal arguments give equal bytes."""
        batch = MicroBatch.model_construct(  # checked where it comes in: here all of it is our own
            v=WIRE_VERSION,
            job=self._spec.job,
            mb=mb,
            model=model,
            kind=kind,
            request_timeout_s=self._spec.request_timeout_s,
            max_retries=self._spec.max_retries,
            fed_at=fed_at,
            requests=tuple(requests),
        )
        return Packed(pack_micro_batch(batch), digest_of(requests))

    def pack_lines(
        self, mb: int, seqs: Sequence[int], lines: Sequence[InputLine], *, round_: int, fed_at: float
    ) -> Packed:
        """The payload of `lines`, fed for the first time in their round as the requests `seqs`."""
        requests = [request_of(seq, round_, line) for seq, line in zip(seqs, lines, strict=True)]
        return self.pack(mb, requests, model=lines[0].model, fed_at=fed_at)

    def pack_again(self, row: MicroBatchRow, journal: JournalReader) -> Packed:
        """The payload of a micro-batch fed earlier, from the input's lines.

        Raises `RefusedError` naming --fresh when they no longer say the same.
        """
        lines = self.read_again(row.seqs, journal, model=row.model)
        requests = [request_of(seq, row.round, line) for seq, line in zip(row.seqs, lines, strict=True)]
        packed = self.pack(row.mb, requests, model=row.model, fed_at=row.fed_at, kind=row.kind)
        if packed.digest != row.payload_digest:
            raise self._changed()
        return packed

    def read_again(self, seqs: Iterable[int], journal: JournalReader, *, model: str) -> list[InputLine]:
        """The input lines of `seqs`, requests to `model`, in this order. Raises `RefusedError`: they have changed."""
        lines: list[InputLine] = []
        for place in journal.places(seqs):
            found = self._read(place, choose_model=lambda named: named or model)
            if not isinstance(found, InputLine):
                raise self._changed()
            lines.append(found)
        return lines

    def read_line(self, place: Place, *, id_hash: bytes | None, choose_model: ChooseModel) -> InputLine | RejectedLine:
        """The line at `place`, judged anew; its custom_id has `id_hash`. Raises `RefusedError`: it has changed."""
        found = self._read(place, choose_model=choose_model)
        if isinstance(found, BlankLine) or found.id_hash != id_hash:
            raise self._changed()
        return found

    def _read(self, place: Place, *, choose_model: ChooseModel) -> InputLine | RejectedLine | BlankLine:
        self._input.seek(place.offset)
        found = list(
            read_lines(
                BytesIO(self._input.read(place.length)),
                offset=place.offset,
                line=place.line,
                choose_model=choose_model,
                include_request=self._spec.include_request,
                max_line_bytes=self._spec.max_line_bytes,
            )
        )
        if len(found) != 1:
            raise self._changed()
        return found[0]

    def _changed(self) -> RefusedError:
        return RefusedError(
            "the input has changed since it was fed",
            where=self._spec.input,
            do="put it back, or start again with --fresh",
        )


def request_of(seq: int, round_: int, line: InputLine) -> Request:
    """The request that travels for `line`."""
    return Request(seq, round_, line.line, line.custom_id, line.url, line.body, line.original)


def digest_of(requests: Iterable[Request]) -> bytes:
    """16 bytes over all that `requests` say."""
    digest = blake2b(digest_size=16)
    for seq, _round, line, custom_id, url, body, original in requests:
        digest.update(b"%d %d %s\n%s\n%s%s" % (seq, line, url.encode(), custom_id.encode(), body, original or b""))
    return digest.digest()
