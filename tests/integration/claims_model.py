"""What Redis should hold and answer: the scripts once more, in plain Python over plain dicts."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Self, cast

from common.claim_types import (
    AskAnswer,
    Claimed,
    CloseAnswer,
    ExpireAnswer,
    Lost,
    MarkAnswer,
    Offer,
    OfferAnswer,
    Publication,
    PublishAnswer,
    Renewal,
    Stage,
)


@dataclass
class Batch:
    """One micro-batch's hash."""

    n: int
    got: int
    z: bytes
    dlv: int
    kind: str
    st: Stage = "READY"
    tok: str | None = None
    wk: str | None = None
    beat: int = 0
    armed: bool = False

    @property
    def full(self) -> int:
        """All bits."""
        return (1 << self.n) - 1

    def held_by(self, token: str) -> bool:
        """Whether `token` holds it now."""
        return self.st == "HELD" and self.tok == token

    def free(self) -> None:
        """Back to READY."""
        self.st, self.tok, self.wk, self.armed = "READY", None, None, False


@dataclass
class Table:
    """One job in Redis; the methods are named and answer as those of `Claims`, which take the job first."""

    info: dict[str, str] = field(default_factory=dict)
    batches: dict[int, Batch] = field(default_factory=dict)
    stream: list[tuple[int, bytes]] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    """Ids of `stream`, which only the server knows: set after each call."""

    def copy(self) -> Self:
        """The table as it is now."""
        return deepcopy(self)

    def own(
        self, *, epoch: int, state: str, mb_high: int, digests: Mapping[str, str], manifest: str, mixed: bool = False
    ) -> bool:
        if int(self.info.get("epoch", 0)) > epoch or int(self.info.get("mb_high", 0)) > mb_high:
            return False
        self.info.update(epoch=str(epoch), state=state, mb_high=str(mb_high), manifest=manifest)
        self.info.update({f"digest:{model}": digest for model, digest in digests.items()})
        self.info.update({"mixed": "1"} if mixed else {})
        return True

    def state(self, *, epoch: int, state: str) -> bool:
        if not self._owned(epoch):
            return False
        self.info["state"] = state
        return True

    def ask(self, want: str) -> AskAnswer:
        if not self.info:
            return "NOJOB"
        if self.info.get("state") == "done":
            return "DONE"
        verb, _, nonce = self.info.get("want", "").partition(":")
        if verb == "cancel" and nonce not in self.info.get("heard", "") and not want.startswith("cancel:"):
            return "CANCEL"
        self.info["want"] = want
        return "OK"

    def offer(self, offers: Sequence[Offer], *, epoch: int) -> list[OfferAnswer]:
        return [self._offer(offer, epoch) for offer in offers]

    def _offer(self, offer: Offer, epoch: int) -> OfferAnswer:
        if not self._owned(epoch):
            return "FENCED"
        if offer.mb in self.batches:
            return "SAME"
        self.batches[offer.mb] = Batch(offer.n, offer.got, offer.z, offer.dlv, offer.kind)
        self.info["mb_high"] = str(max(int(self.info.get("mb_high", 0)), offer.mb))
        return "NEW"

    def claim(self, mb: int, *, token: str, worker: str, model: str, digest: str) -> Claimed:
        if self.info.get("state") != "open":
            return Claimed(self.info.get("state", "NOJOB"), None, 0, 0)
        if self.info.get(f"digest:{model}", digest) not in (digest, ""):
            return Claimed("OTHER_MODEL", None, 0, 0)
        batch = self.batches.get(mb)
        if batch is None:
            return Claimed("GONE", None, 0, 0)
        if batch.st == "READY":
            batch.st, batch.tok, batch.wk, batch.armed = "HELD", token, worker, False
            batch.beat += 1
            self.info.setdefault(f"digest:{model}", "" if "mixed" in self.info else digest)
        elif not batch.held_by(token):
            return Claimed("BUSY", None, 0, 0)
        return Claimed("GO", batch.z, batch.got, batch.dlv)

    def renew(self, holds: Sequence[tuple[int, str]]) -> Renewal:
        return Renewal(self.info.get("state", "NOJOB"), [self._renew(mb, token) for mb, token in holds])

    def _renew(self, mb: int, token: str) -> int | Lost:
        batch = self.batches.get(mb)
        if batch is None:
            return "GONE"
        if not batch.held_by(token):
            return batch.st
        batch.beat += 1
        return batch.got

    def arm(self, mb: int, *, token: str) -> bool:
        batch = self.batches.get(mb)
        if batch is None or not batch.held_by(token):
            return False
        batch.armed = True
        batch.beat += 1
        return True

    def publish(self, publications: Sequence[Publication]) -> list[PublishAnswer]:
        return [self._publish(publication) for publication in publications]

    def _publish(self, publication: Publication) -> PublishAnswer:
        batch = self.batches.get(publication.mb)
        sealed = self.info.get("state") in ("sealed", "done")
        if sealed or batch is None or batch.st == "READY" or batch.tok != publication.token:
            return "REFUSED"
        new = publication.mask & ~batch.got
        if new:
            self.stream.append((publication.mb, publication.blob))
            batch.got |= publication.mask
        if batch.got == batch.full:
            batch.st = "FULL"
            return "FULL"
        return "OK" if new else "DUP"

    def release(self, mb: int, *, token: str) -> bool:
        batch = self.batches.get(mb)
        if batch is None or not batch.held_by(token):
            return False
        batch.free()
        return True

    def expire(self, mb: int, *, epoch: int, token: str, beat: int) -> ExpireAnswer:
        if not self._owned(epoch):
            return "FENCED"
        batch = self.batches.get(mb)
        if batch is None or not batch.held_by(token) or batch.beat != beat:
            return "MOVED"
        batch.free()
        batch.dlv += 1
        return "OK"

    def mark(self, mb: int, *, epoch: int, mask: int) -> MarkAnswer:
        if not self._owned(epoch):
            return "FENCED"
        if mb not in self.batches:
            return "GONE"
        self.batches[mb].got |= mask
        return "OK"

    def close(self, mbs: Sequence[int], *, epoch: int) -> list[CloseAnswer]:
        if not self._owned(epoch):
            return ["FENCED" for _ in mbs]
        for mb in mbs:
            self.batches.pop(mb, None)
        return ["OK" for _ in mbs]

    def drop_entries(self, ids: Sequence[str]) -> None:
        """What XDEL does."""
        self.stream = [entry for entry_id, entry in zip(self.ids, self.stream, strict=True) if entry_id not in ids]

    def _owned(self, epoch: int) -> bool:
        return self.info.get("epoch") == str(epoch)


def batch_of(fields: Mapping[bytes, bytes]) -> Batch:
    """The micro-batch in a hash as Redis gives it; an unknown or missing field raises."""
    texts = {name.decode(): value for name, value in fields.items()}
    batch = Batch(
        n=int(texts.pop("n")),
        got=int.from_bytes(texts.pop("got"), "little"),
        z=texts.pop("z"),
        dlv=int(texts.pop("dlv")),
        kind=texts.pop("kind").decode(),
        st=cast(Stage, texts.pop("st").decode()),
        tok=texts.pop("tok", b"").decode() or None,
        wk=texts.pop("wk", b"").decode() or None,
        beat=int(texts.pop("beat")),
        armed=texts.pop("armed", b"") == b"1",
    )
    assert not texts, f"unknown fields {sorted(texts)}"
    return batch
