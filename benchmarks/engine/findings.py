"""What a workload's runs come to: rates, ratios of neighbours in time, bounds, and where the fleet's time went."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.engine.gap import Gap, cells, median_gap
from benchmarks.engine.measured import Measured
from benchmarks.engine.workloads import AT_ONCE, BY_8, BY_32, FLEET, KEPT, RUN_BATCH, Workload
from benchmarks.report import Bound, Compared

HEADER = ["workload", "side", "median tokens/s", "fleet / it", "seconds of each repeat"]
LEAST_OF_FASTER = 0.97
LEAST_OF_RUN_BATCH = 1.0
LEAST_OF_ONE_BY_ONE = 1.8
TOKENS_WITHIN = 0.005
FASTER = "the faster of both"


@dataclass(frozen=True)
class Findings:
    """One workload."""

    workload: Workload
    rows: int
    expected_tokens: int
    runs: Mapping[str, Sequence[Measured]]
    """By side, repeat after repeat; of the sides one by one there is one, after all others."""

    @property
    def whole(self) -> dict[str, Sequence[Measured]]:
        """Of the sides that run all rows."""
        return {side: self.runs[side] for side in self.workload.sides}

    @property
    def compared(self) -> Compared:
        """Tokens a second, the fleet's first."""
        rates = {side: [run.rate for run in runs] for side, runs in self.whole.items()}
        rates[FASTER] = [run.rate for run in self.faster]
        return Compared("tokens/s", rates)

    @property
    def faster(self) -> list[Measured]:
        """In each repeat, the faster of the two best ways to feed the bare engine."""
        pairs = zip(self.runs[AT_ONCE], self.runs[KEPT], strict=True)
        return [min(pair, key=lambda run: run.seconds) for pair in pairs]

    @property
    def gap(self) -> Gap:
        """Between the fleet and the faster."""
        return median_gap(self.runs[FLEET], self.faster)

    @property
    def one_by_one(self) -> dict[str, float]:
        """The fleet over each: its last repeat is their neighbour in time on a machine that changes its speed."""
        return {
            side: self.runs[FLEET][-1].rate / self.runs[side][0].rate for side in (BY_32, BY_8) if side in self.runs
        }

    def bounds(self) -> list[Bound]:
        """All that hold for it."""
        name, ratios = self.workload.name, self.compared.ratios
        off = max(abs(run.tokens / self.expected_tokens - 1) for runs in self.whole.values() for run in runs)
        found = [Bound(f"{name}: fleet / faster of all at once and kept", ratios[FASTER], least=LEAST_OF_FASTER)]
        if RUN_BATCH in ratios:
            found.append(Bound(f"{name}: fleet / run-batch", ratios[RUN_BATCH], least=LEAST_OF_RUN_BATCH))
        for side, ratio in self.one_by_one.items():
            found.append(Bound(f"{name}: fleet / micro-batches {side}, one by one", ratio, least=LEAST_OF_ONE_BY_ONE))
        return [*found, Bound(f"{name}: token totals differ by", off, most=TOKENS_WITHIN)]

    def rates(self) -> list[list[str]]:
        """Lines of the table, in the order of `HEADER`."""
        compared = self.compared
        ratios, medians = {**compared.ratios, **self.one_by_one}, compared.medians
        seconds = {**self.runs, FASTER: self.faster}
        return [
            [
                self.workload.name,
                side,
                f"{medians.get(side, runs[0].rate):.0f}",
                f"{ratios[side]:.3f}" if side in ratios else "",
                ", ".join(f"{run.seconds:.1f}" for run in runs),
            ]
            for side, runs in seconds.items()
        ]

    def places(self) -> list[list[str]]:
        """Where each side's time went, in the order of `gap.HEADER`."""
        return [cells(self.workload.name, side, runs) for side, runs in self.whole.items()]

    def gaps(self) -> list[str]:
        """The fleet's seconds over the faster's, and what they are."""
        of_s = statistics.median(run.seconds for run in self.faster)
        return [self.workload.name, *(f"{part_s:.2f} ({part_s / of_s:+.1%})" for part_s in self.gap)]

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "rows": self.rows,
            "output_tokens": self.expected_tokens,
            "sides": {side: [run.to_json() for run in runs] for side, runs in self.runs.items()},
            "compared": self.compared.to_json(),
            "one_by_one": self.one_by_one,
            "gap": {name: round(part_s, 3) for name, part_s in self.gap._asdict().items()},
        }
