"""How long GPUs worked for one job: each worker's busy time, split by what its results weigh. Pure.

A result weighs its tokens and one more, so that answers without tokens (scores, errors) weigh something too. Each
worker counts its busy seconds and the weight of all its results; a job's share of the busy seconds is its own weight.
See docs/decisions/0026-gpu-seconds-and-cost.md.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from common.wire import Result
from producer.fleet import Worker

BEAT_S = 5.0
"""A heartbeat is at most about so old."""
_WORKER = b'"worker":"'


class _Beat(NamedTuple):
    """What a worker's heartbeat says of its life so far."""

    busy_s: float
    weight: int


class _Account(NamedTuple):
    """One worker: as it was first seen, as it was last seen, and when that changed (monotonic)."""

    first: _Beat
    last: _Beat
    changed_s: float
    gpus: int

    def charge(self, own: int, *, now_s: float) -> float:
        """Seconds for results of the weight `own`.

        Their share of what it did since it was first seen. What is above that came while no collector looked, or after
        the last heartbeat: it is charged as the worker's results were in all its life, and no more than that life.
        """
        most_s = self.last.busy_s + min(BEAT_S, now_s - self.changed_s)
        if not self.last.weight:
            return most_s
        busy_s, weight = self.last.busy_s - self.first.busy_s, self.last.weight - self.first.weight
        seen = min(own, weight)
        charged_s = busy_s * seen / weight if weight else 0.0
        return min(most_s, charged_s + (own - seen) * self.last.busy_s / self.last.weight)


class Usage:
    """One job's, for the life of its collector."""

    def __init__(self, before_s: float) -> None:
        """`before_s`: what earlier collectors have counted."""
        self._before_s = before_s
        self._accounts: dict[str, _Account] = {}
        self._own: Counter[str] = Counter()
        """Worker -> weight of its results for this job."""

    def note(self, results: Sequence[Result]) -> None:
        """Results that came in one entry: of one worker."""
        if results and (worker := worker_of(results[0].line)):
            self._own[worker] += sum(weight_of(result) for result in results)

    def look(self, workers: Iterable[Worker], *, now_s: float) -> None:
        """Note how far the live workers are."""
        for worker in workers:
            beat = _Beat(worker.busy_s, worker.tokens + worker.results)
            account = self._accounts.get(worker.incarnation) or _Account(beat, beat, now_s, worker.gpus)
            if beat != account.last:
                account = account._replace(last=beat, changed_s=now_s)
            self._accounts[worker.incarnation] = account

    def total_s(self, *, now_s: float) -> float:
        """GPU seconds of the job so far."""
        charged = (
            account.gpus * account.charge(own, now_s=now_s)
            for worker, own in self._own.items()
            if (account := self._accounts.get(worker))
        )
        return self._before_s + sum(charged)


def weight_of(result: Result) -> int:
    """What a result counts."""
    return result.prompt_tokens + result.completion_tokens + 1


def worker_of(line: bytes) -> str:
    """Who made a result line, by its `meta`, which stands last; empty where it does not say.

    Inside a JSON string these bytes cannot stand, since quotes are escaped there.
    """
    _, found, rest = line.rpartition(_WORKER)
    return rest.partition(b'"')[0].decode() if found else ""


def cost_of(gpu_s: float, *, per_hour: float) -> float:
    """What so many GPU seconds cost."""
    return gpu_s / 3600 * per_hour
