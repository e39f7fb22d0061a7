"""One small job to play the scripts on: nine requests a micro-batch, epoch 5."""

from collections.abc import Iterator
from contextlib import contextmanager

import redis

from common.claim_types import Claimed, Offer, Publication, Seen
from common.claims import Claims

JOB = "job-1"
ONE, TWO = "1" * 32, "2" * 32
ALL = 0b1_1111_1111
"""Nine requests: got takes two bytes, and the second is not whole."""


def opened(client: redis.Redis) -> Claims:
    """One open job under epoch 5, with micro-batch 1 READY."""
    claims = Claims(client)
    assert own(claims, epoch=5)
    assert claims.offer(JOB, [an_offer(1)], epoch=5) == ["NEW"]
    return claims


def own(
    claims: Claims,
    *,
    epoch: int,
    state: str = "open",
    mb_high: int = 0,
    digests: dict[str, str] | None = None,
    manifest: str = "{}",
) -> bool:
    """Take the job."""
    return claims.own(JOB, epoch=epoch, state=state, mb_high=mb_high, digests=digests or {}, manifest=manifest)


def an_offer(mb: int, *, got: int = 0, n: int = 9) -> Offer:
    """A micro-batch of `n` requests."""
    return Offer(mb, n, got, b"payload \x00\xff", 1, "normal")


def claim(claims: Claims, mb: int = 1, *, token: str = ONE, digest: str = "d") -> Claimed:
    """Claim for a worker that serves model `m`."""
    return claims.claim(JOB, mb, token=token, worker="w-0", model="m", digest=digest)


def publish(claims: Claims, mask: int, *, token: str = ONE, mb: int = 1) -> str:
    """Publish the positions in `mask`."""
    return claims.publish(JOB, [Publication(mb, token, mask, b"blob \x00\xff")])[0]


def seen(claims: Claims, mb: int = 1) -> Seen:
    """The micro-batch as a look shows it."""
    return claims.look(JOB).micro_batches[mb]


@contextmanager
def unchanged(client: redis.Redis) -> Iterator[None]:
    """Assert that the block left every key as it was."""
    before = everything(client)
    yield
    assert everything(client) == before


def everything(client: redis.Redis) -> dict[bytes, object]:
    """All keys with all they hold."""
    return {key: client.dump(key) for key in client.scan_iter(count=1000)}
