"""From the records of all runs to one line of figures a kind, with a verdict: what table and matrix show."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.chaos.kinds import KINDS, REAL_KINDS, Kind
from benchmarks.chaos.run import RunRecord

HEADER = (
    *("fault", "process", "runs", "void", "lost", "doubled", "innocents", "wrong"),
    *("redo median s", "redo max s", "standstill s", "tokens made / delivered", "verdict"),
)
UNKNOWN = "-"


@dataclass(frozen=True)
class Figures:
    """One line of the table: a kind and its runs."""

    kind: Kind
    records: tuple[RunRecord, ...]

    @property
    def counted(self) -> list[RunRecord]:
        """The runs whose faults had an effect. One without is looked at all the same for what it lost."""
        return [record for record in self.records if record.void is None]

    @property
    def redo_s(self) -> list[float]:
        """Of all lost holds."""
        return [redo_s for record in self.counted for redo_s in record.redo_s]

    @property
    def misses(self) -> list[str]:
        """What is not as it must be."""
        names = ("lost", "doubled", "innocents")
        sums = {name: sum(getattr(record, name) for record in self.records) for name in names}
        found = [f"{count} {name}" for name, count in sums.items() if count]
        found += [f"seed {record.seed}: {what}" for record in self.records for what in record.broken]
        if max(self.redo_s, default=0.0) > self.kind.redo_s:
            found.append(f"redo {max(self.redo_s):.1f} s, at most {self.kind.redo_s:g}")
        if not self.counted:
            found.append("every run was void")
        return found

    def cells(self) -> list[str]:
        """As text, in the order of `HEADER`."""
        sums = [str(sum(getattr(record, name) for record in self.records)) for name in ("lost", "doubled", "innocents")]
        redo_s = self.redo_s
        redo = [f"{statistics.median(redo_s):.1f}", f"{max(redo_s):.1f}"] if redo_s else [UNKNOWN, UNKNOWN]
        standstill_s = max((record.standstill_s for record in self.counted), default=0.0)
        return [
            *(self.kind.fault, self.kind.process, str(len(self.records)), str(len(self.records) - len(self.counted))),
            *sums,
            str(sum(bool(record.broken) for record in self.records)),
            *redo,
            f"{standstill_s:.1f}",
            self._tokens(),
            "MISSED" if self.misses else "held",
        ]

    def _tokens(self) -> str:
        known = [record for record in self.counted if record.tokens_made is not None and record.tokens_delivered]
        made = sum(record.tokens_made or 0 for record in known)
        return f"{made / sum(record.tokens_delivered for record in known):.3f}" if known else UNKNOWN


def figures_of(records: Iterable[RunRecord]) -> list[Figures]:
    """A line for each kind that was run, in the order of the kinds. Raises `ValueError` for one that there is not."""
    grouped: dict[tuple[str, str], list[RunRecord]] = {}
    for record in records:
        grouped.setdefault((record.fault, record.process), []).append(record)
    known = {(kind.fault, kind.process): kind for kind in (*KINDS, *REAL_KINDS)}
    if unknown := grouped.keys() - known.keys():
        raise ValueError(f"no such kind of fault any more: {sorted(unknown)}; run chaos again")
    return [Figures(kind, tuple(grouped[name])) for name, kind in known.items() if name in grouped]


def records_from_json(runs: Sequence[dict[str, Any]]) -> list[RunRecord]:
    """What `RunRecord.to_json` made."""
    return [RunRecord(**run) for run in runs]
