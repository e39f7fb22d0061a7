"""What the fleet's time over the bare engine's goes to, as far as steps and the clock's two ends tell."""

import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

from benchmarks.engine.cpu import CORE, FRONT, beside
from benchmarks.engine.measured import Measured

PARTS = ["workload", "longer by", "ends", "more steps", "slower steps"]
HEADER = [
    "workload",
    "side",
    "full after s",
    "tail s",
    "last line s",
    "steps",
    "ms a step",
    "CPU s: core",
    "front",
    "beside",
]


class Gap(NamedTuple):
    """Seconds that the fleet took longer than a bare side; the three parts add up to the whole."""

    whole_s: float
    ends_s: float
    """In which its engine had nothing to do: before the first request came, after the last answer."""
    more_steps_s: float
    """For steps that the bare engine did without: an engine less full, a longer tail, another order."""
    slower_steps_s: float
    """For steps that took longer: the processor's time that the rest of the fleet took, and noise."""

    @classmethod
    def between(cls, fleet: Measured, bare: Measured) -> "Gap":
        """Of one repeat."""
        more_steps_s = (fleet.steps - bare.steps) * bare.step_s
        slower_steps_s = fleet.steps * (fleet.step_s - bare.step_s)
        return cls(fleet.seconds - bare.seconds, fleet.lost_s - bare.lost_s, more_steps_s, slower_steps_s)


def median_gap(fleet: Sequence[Measured], bare: Sequence[Measured]) -> Gap:
    """Part by part, over pairs of repeats."""
    gaps = [Gap.between(one, other) for one, other in zip(fleet, bare, strict=True)]
    return Gap(*(statistics.median(parts) for parts in zip(*gaps, strict=True)))


def cells(workload: str, side: str, runs: Sequence[Measured]) -> list[str]:
    """The line of a side, in the order of `HEADER`; medians of its repeats."""
    return [
        workload,
        side,
        _median(runs, lambda run: run.edges and run.edges.full_s, digits=2),
        _median(runs, lambda run: run.tail_s),
        _median(runs, lambda run: run.edges and run.edges.settled_s, digits=2),
        _median(runs, lambda run: run.steps, digits=0),
        _median(runs, lambda run: 1000 * run.step_s),
        _median(runs, lambda run: run.cpu_s.get(CORE)),
        _median(runs, lambda run: run.cpu_s.get(FRONT)),
        _median(runs, lambda run: beside(run.cpu_s)),
    ]


def _median(runs: Sequence[Measured], figure: Callable[[Measured], float | None], *, digits: int = 1) -> str:
    found = [each for run in runs if (each := figure(run)) is not None]
    return f"{statistics.median(found):.{digits}f}" if found else ""
