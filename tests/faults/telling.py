"""A `producer` that says in a file what it is about to make sure of in Redis, before it does.

python -m tests.faults.telling MARKS PRODUCER-ARGUMENTS...

Each mark is one write of one JSON object: `epoch` and `manifest` before Redis is told of them, `mb_high` before a
micro-batch is offered, `settled` (seqs) before their entries are deleted.
"""

import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from common.claim_types import Entry, Offer
from common.claims import Claims
from producer import cli
from producer.receiver import Arrived, Receiver


class Teller:
    """Writes marks, and knows which results came in which entry."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        self._seqs: dict[str, list[int]] = {}

    def mark(self, **facts: object) -> None:
        """Say it."""
        os.write(self._descriptor, json.dumps(facts).encode())

    def install(self) -> None:
        """Tell of every claim of ownership, offer and deletion from now on."""
        own, offer, drop, read = Claims.own, Claims.offer, Claims.drop_entries, Receiver._read

        def telling_own(claims: Claims, job: str, *, epoch: int, manifest: str, mb_high: int, **rest: Any) -> bool:
            self.mark(epoch=epoch, manifest=manifest, mb_high=mb_high)
            return own(claims, job, epoch=epoch, manifest=manifest, mb_high=mb_high, **rest)

        def telling_offer(claims: Claims, job: str, offers: Sequence[Offer], *, epoch: int) -> Any:
            self.mark(mb_high=max((each.mb for each in offers), default=0))
            return offer(claims, job, offers, epoch=epoch)

        def telling_drop(claims: Claims, job: str, ids: Sequence[str]) -> None:
            self.mark(settled=[seq for each in ids for seq in self._seqs.get(each, [])])
            drop(claims, job, ids)

        def remembering(receiver: Receiver, entry: Entry) -> Arrived | None:
            arrived = read(receiver, entry)
            if arrived is not None:
                self._seqs[entry.id] = [result.seq for result in arrived.results]
            return arrived

        for owner, name, function in (
            (Claims, "own", telling_own),
            (Claims, "offer", telling_offer),
            (Claims, "drop_entries", telling_drop),
            (Receiver, "_read", remembering),
        ):
            setattr(owner, name, function)


def main() -> None:
    """Be the producer."""
    marks, *arguments = sys.argv[1:]
    Teller(marks).install()
    sys.argv = ["producer", *arguments]
    cli.main()


if __name__ == "__main__":
    main()
