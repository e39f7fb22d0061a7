"""What one job on one fleet came to, beside what the perfect dispatcher makes of the same rows: a line of the table."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.scale.cpu import Cpu
from benchmarks.scale.dispatcher import dispatch
from benchmarks.scale.job import Finished
from benchmarks.scale.spans import (
    SimWorker,
    Span,
    full_after_s,
    idle_share,
    makespan_s,
    tail_idle_parts,
    tail_idle_share,
)

HEADER = ["workers", "rows", "seconds", "perfect", "ratio", "speed-up", "idle at end", "perfect", "all busy s", "CPU"]
MIDDLE = (0.25, 0.75)


@dataclass(frozen=True)
class Figures:
    """One job."""

    fleet: str
    lengths: Sequence[int]
    workers: list[SimWorker]
    spans: list[Span]
    perfect: list[Span]
    seconds: float
    cpu: Cpu

    @classmethod
    def of(cls, fleet: str, finished: Finished, lengths: Sequence[int], workers: list[SimWorker]) -> "Figures":
        """Of a job that `workers` ran."""
        spans, perfect = finished.spans(lengths, workers), dispatch(lengths, workers)
        return cls(fleet, lengths, workers, spans, perfect, finished.seconds, finished.cpu)

    @property
    def ratio(self) -> float:
        """How fast it was, as a share of the perfect dispatcher."""
        return makespan_s(self.perfect) / self.seconds

    @property
    def tokens_per_s(self) -> float:
        """Over the whole job."""
        return sum(self.lengths) / self.seconds

    @property
    def perfect_tokens_per_s(self) -> float:
        """The perfect dispatcher's."""
        return sum(self.lengths) / makespan_s(self.perfect)

    @property
    def tail_above_perfect(self) -> float:
        """Idle share in the last rows, above the perfect dispatcher's own."""
        return tail_idle_share(self.spans, self.workers) - tail_idle_share(self.perfect, self.workers)

    def cells(self, first: "Figures") -> list[str]:
        """As text, in the order of `HEADER`."""
        return [
            *(self.fleet, f"{len(self.lengths):,}", f"{self.seconds:.1f}", f"{makespan_s(self.perfect):.1f}"),
            *(f"{self.ratio:.3f}", f"{self.tokens_per_s / first.tokens_per_s:.2f}"),
            f"{tail_idle_share(self.spans, self.workers):.1%}",
            f"{tail_idle_share(self.perfect, self.workers):.1%}",
            *(f"{full_after_s(self.spans, self.workers):.2f}", f"{self.cpu.fleet:.0%} of {self.cpu.machine:.0%}"),
        ]

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        full_s = full_after_s(self.spans, self.workers)
        return {
            "fleet": self.fleet,
            "rows": len(self.lengths),
            "tokens": sum(self.lengths),
            "seconds": self.seconds,
            "dispatcher_s": round(makespan_s(self.perfect), 3),
            "ratio": round(self.ratio, 4),
            "last_row_s": round(makespan_s(self.spans), 3),
            "idle_middle": round(idle_share(self.spans, self.workers, rows=MIDDLE), 4),
            "idle_tail": round(tail_idle_share(self.spans, self.workers), 4),
            "idle_tail_parts": {name: round(s, 4) for name, s in tail_idle_parts(self.spans, self.workers).items()},
            "dispatcher_idle_tail": round(tail_idle_share(self.perfect, self.workers), 4),
            "full_after_s": None if math.isinf(full_s) else round(full_s, 3),
            "cpu": self.cpu.to_json(),
        }
