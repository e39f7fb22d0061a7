"""What the scripts are told and what they answer, as named tuples; `common.claims` makes the calls.

A mask (`got`, `mask`) is an int: bit i stands for position i of the micro-batch. In Redis it is a string of bytes, bit
i % 8 of byte i // 8.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

Stage = Literal["READY", "HELD", "FULL"]
OfferAnswer = Literal["NEW", "SAME", "FENCED"]
PublishAnswer = Literal["OK", "FULL", "DUP", "REFUSED"]
ExpireAnswer = Literal["OK", "MOVED", "FENCED"]
MarkAnswer = Literal["OK", "GONE", "FENCED"]
CloseAnswer = Literal["OK", "FENCED"]
AskAnswer = Literal["OK", "NOJOB", "DONE", "CANCEL"]
Lost = Literal["READY", "HELD", "FULL", "GONE"]
"""Why a hold could not be renewed: handed back, another's, finished, or no such micro-batch."""


class Offer(NamedTuple):
    """One micro-batch to put up. `n` requests, of which those in `got` are not to be run."""

    mb: int
    n: int
    got: int
    z: bytes
    dlv: int
    """Deliveries, this one included (1 = the first); `expire` adds one in Redis, the journal keeps its own count."""
    kind: Literal["normal", "solo"]


class Claimed(NamedTuple):
    """What a claim brought. `z` is None unless `answer` is GO."""

    answer: str
    """GO, BUSY, GONE, OTHER_MODEL, NOJOB, or the job's state when it is not `open`."""
    z: bytes | None
    got: int
    dlv: int


class Renewal(NamedTuple):
    """The job's state (NOJOB: unknown to Redis) and, a hold each: its `got`, or why it is lost."""

    state: str
    holds: list[int | Lost]


class Publication(NamedTuple):
    """Results to hand over: those of the positions in `mask`, packed by `common.wire.pack_results`."""

    mb: int
    token: str
    mask: int
    blob: bytes


class Entry(NamedTuple):
    """One entry of the results stream. `mb` is None when it cannot be read."""

    id: str
    mb: int | None
    blob: bytes


class Seen(NamedTuple):
    """One open micro-batch as a look saw it; `token` and `worker` are None unless it is HELD or FULL."""

    st: Stage
    token: str | None
    beat: int
    got: int
    armed: bool
    worker: str | None


class Look(NamedTuple):
    """One job as Redis had it. `epoch` and `state` are None when Redis knows nothing of the job.

    `stream_length` is older than most of `micro_batches`: bits seen in one look whose entries are not in the stream by
    the next look's `stream_length` have been received.
    """

    epoch: int | None
    state: str | None
    want: str | None
    digests: dict[str, str]
    """Model -> the digest pinned for it; empty: any."""
    stream_length: int
    last_id: str
    """Of the newest entry there ever was; empty without a stream."""
    micro_batches: dict[int, Seen]
    fields: Mapping[str, str]
    """The rest of `info`: manifest, mb_high, counts."""
