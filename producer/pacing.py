"""Pacing: when a micro-batch that stands in Redis gets its first hint. Between the feeder's offer and a worker's claim.

All jobs share the queues of a fleet. One that hinted its whole window at once would let every later job wait behind it,
so each keeps only so many unclaimed hints there as `hint_bound` allows; the rest waits here, in order. What was lost
before goes at once. All of it follows from the window, so a crash loses nothing: a new collector begins anew, and a
hint sent twice does no harm.
"""

from collections import defaultdict
from collections.abc import Iterable

from producer.hint_bound import HintBound
from producer.job import Job
from producer.window import OpenMicroBatch

FIRST_PROBE = 4
"""Hints are claimed in order: where none of the oldest few is, later ones need not be asked for."""


class Pacing:
    """One job's first hints."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._bounds: dict[str, HintBound] = {}
        """By model."""

    def has_enough(self, *, all_fed: bool) -> bool:
        """Whether workers have work until a later turn: it is left, they are not too fast, and no suspect waits."""
        window, is_fast = self._job.window, any(bound.has_grown for bound in self._bounds.values())
        return not (is_fast or window.solos) and (all_fed or window.has_unclaimed)

    def let_travel(self, *, most: int, now_s: float) -> None:
        """Hint what may travel now, at most `most` requests of a model. Raises `redis.RedisError`."""
        urgent: list[OpenMicroBatch] = []
        waiting: defaultdict[str, list[OpenMicroBatch]] = defaultdict(list)
        hinted: defaultdict[str, list[OpenMicroBatch]] = defaultdict(list)
        for batch in self._job.window.open.values():
            if batch.claimed or batch.row.kind == "solo":
                continue
            if batch.hint is not None:
                if not batch.goes_first:
                    hinted[batch.row.model].append(batch)
            elif now_s >= batch.quiet_until_s:
                (urgent if batch.goes_first else waiting[batch.row.model]).append(batch)
        self._send(urgent, now_s=now_s, reason="redelivery")
        for model in waiting.keys() | hinted.keys():
            self._travel(model, waiting[model], hinted[model], most=most, now_s=now_s)

    def start_over(self) -> None:
        """Forget which hints were sent: what nobody has claimed waits for its turn again."""
        for batch in self._job.window.open.values():
            if not batch.claimed:
                batch.hint = None

    def leave(self, *, now_s: float) -> None:
        """Hint all that waits, behind everybody else's: workers go on, though nobody feeds them from here any more."""
        batches = self._job.window.open.values()
        waiting = [each for each in batches if each.hint is None and not each.claimed and each.row.kind != "solo"]
        self._job.hints.leave(waiting, self._job.client, route=self._job.route, now_s=now_s)

    def _travel(
        self, model: str, waiting: list[OpenMicroBatch], hinted: list[OpenMicroBatch], *, most: int, now_s: float
    ) -> None:
        """Hint as many of `waiting` as there is room for, at least one where none is on its way."""
        job = self._job
        bound = self._bounds.setdefault(model, HintBound(now_s=now_s))
        unclaimed = sorted(hinted, key=_hinted_at)
        if waiting:
            unclaimed = self._unclaimed(unclaimed)
        requests = sum(batch.missing for batch in unclaimed)
        room = bound.room(requests, least=job.fleet.capacity(model), most=most, now_s=now_s)
        chosen = _choose(waiting, room=room, at_least_one=not requests)
        self._send(chosen, now_s=now_s, reason="new")
        requests += sum(batch.missing for batch in chosen)
        bound.note(requests, hinted=bool(chosen), left=len(chosen) < len(waiting), now_s=now_s)
        if unclaimed and bound.is_stuck(now_s=now_s):
            self._send(unclaimed[:1], now_s=now_s, reason="unclaimed")

    def _unclaimed(self, hinted: list[OpenMicroBatch]) -> list[OpenMicroBatch]:
        """Those of `hinted`, oldest first, that no worker has come to, as far as Redis need be asked."""
        job, asked, count = self._job, 0, FIRST_PROBE
        while some := hinted[asked : asked + count]:
            stages = job.claims.stages(job.id, [batch.row.mb for batch in some])
            claimed = [batch for batch, stage in zip(some, stages, strict=True) if stage in ("HELD", "FULL")]
            for batch in claimed:
                job.window.note_claim(batch)
            if not claimed:
                break
            asked, count = asked + count, 2 * count
        return [batch for batch in hinted if not batch.claimed]

    def _send(self, batches: Iterable[OpenMicroBatch], *, now_s: float, reason: str) -> None:
        self._job.hints.send(batches, route=self._job.route, now_s=now_s, reason=reason)


def _choose(waiting: list[OpenMicroBatch], *, room: int, at_least_one: bool) -> list[OpenMicroBatch]:
    """The first of `waiting` that fit into `room` requests."""
    chosen: list[OpenMicroBatch] = []
    for batch in waiting:
        if batch.missing > room and (chosen or not at_least_one):
            break
        chosen.append(batch)
        room -= batch.missing
    return chosen


def _hinted_at(batch: OpenMicroBatch) -> float:
    return 0.0 if batch.hint is None else batch.hint.at_s
