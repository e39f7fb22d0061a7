"""`python -m benchmarks.chaos.matrix`: docs/kill-matrix.md from docs/kill-matrix.json, which chaos has written."""

import argparse
import sys
from typing import Any

from benchmarks.chaos.document import DOCS, SOURCE, read_document
from benchmarks.chaos.figures import HEADER, figures_of, records_from_json
from benchmarks.chaos.kinds import FLOW_S, KILLED_S, VANISHED_S

PAGE = DOCS / "kill-matrix.md"

_INTRODUCTION = """# The kill matrix

What became of jobs in the middle of which something was killed, frozen, cut off or lost. Made by
`python -m benchmarks.chaos.matrix` from `kill-matrix.json`, which `make chaos` has written; do not edit it by hand.

Commit `{commit}`, seeds {first} to {last}, {minutes} minutes, {cpus} processors. A run is one job of some hundred lines
on real processes: Valkey with an append-only file, supervisors with workers on the simulated engine{real}, a producer.
One kind of fault strikes it one to three times, at drawn moments. Each run ends with a look at everything: each line
has one result, in order, equal to that of an undisturbed run but for `id`, `response.request_id`, `meta` and the
engine's own id and time of the answer; the ordered file is what the journal says; lines that were durable are
unchanged; nothing but `info` is left in Redis.

"""
_LEGEND = """
- **void**: runs whose fault had no effect (nothing was held, nothing waited). They count for what they lost and for
  nothing else.
- **innocents**: lines called `worker_lost` that did nothing, and lines blamed though no process had died.
- **wrong**: runs in which anything else did not hold.
- **redo**: from the fault until the work of a lost hold was held by somebody again. Bound: {killed:g} s for a killed
  process, {vanished:g} s where nobody can say that it is gone. `-`: the fault ends no hold.
- **standstill**: the longest time in which no result came, less the time that the fault itself lasted. Bound:
  {flow:g} s.
- **tokens made / delivered**: all that the engines made, to what stands in results. Short jobs and many faults: see
  `python -m benchmarks.waste` for a fleet at work.
"""


def render(document: dict[str, Any]) -> str:
    """The page."""
    figures = figures_of(records_from_json(document["runs"]))
    seeds = [run["seed"] for run in document["runs"]]
    head = _INTRODUCTION.format(
        commit=document["commit"],
        first=min(seeds),
        last=max(seeds),
        minutes=document["minutes"],
        cpus=document["machine"]["cpus"],
        real=" (in the last lines the real one)" if any(line.kind.shape.is_real for line in figures) else "",
    )
    rows = [HEADER, tuple("---" for _ in HEADER), *(line.cells() for line in figures)]
    table = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    misses = "".join(f"- MISSED, {line.kind.name}: {'; '.join(line.misses)}\n" for line in figures if line.misses)
    legend = _LEGEND.format(killed=KILLED_S, vanished=VANISHED_S, flow=FLOW_S)
    return head + table + (f"\n{misses}" if misses else "") + legend + _waste(document.get("waste"))


def _waste(waste: dict[str, Any] | None) -> str:
    if waste is None:
        return ""
    return (
        f"\nWaste: 3 workers, 32 requests in flight each, mean request 2 s, a worker killed every {waste['every_s']:g}"
        f" s for {waste['minutes']:g} min: {waste['kills']} kills, tokens made / delivered {waste['ratio']:.4f}"
        f" (bound {waste['most']}).\n"
    )


def main() -> int:
    """Write the page, or say whether it is the one that the JSON makes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; 1 when the page does not match")
    page = render(read_document())
    if not parser.parse_args().check:
        PAGE.write_text(page, encoding="utf-8")
        return 0
    if PAGE.read_text(encoding="utf-8") == page:
        return 0
    print(f"{PAGE} is not what {SOURCE} makes: python -m benchmarks.chaos.matrix", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
