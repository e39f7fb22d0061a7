"""`python -m benchmarks.chaos`: round the kinds of faults until the time is over; JSON, a table, MISSED where due."""

import argparse
import itertools
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.chaos.document import read_document, write_document
from benchmarks.chaos.figures import figures_of
from benchmarks.chaos.kinds import KINDS, REAL, REAL_KINDS, Kind
from benchmarks.chaos.lines import undisturbed, undisturbed_real
from benchmarks.chaos.run import RunRecord, run_once
from benchmarks.report import commit, cpus

SHORT = ("runs", "void", "lost", "doubled", "innocents", "wrong", "redo", "max", "still", "tokens", "verdict")
"""Column heads that fit a terminal."""


def main() -> int:
    """Run, write, print; 1 when anything was missed."""
    arguments = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))  # by the way of every `with`: no process may be left
    began_s = time.monotonic()
    arguments.keep.mkdir(parents=True, exist_ok=True)
    records = []
    with tempfile.TemporaryDirectory(prefix="bh-chaos-") as scratch:
        kinds = [kind for kind in KINDS if arguments.only in kind.name]
        reference = undisturbed(Path(scratch) / "undisturbed")
        over_s = began_s + 60 * arguments.minutes
        for number, kind in enumerate(itertools.cycle(kinds)):
            if number >= len(kinds) * arguments.least and time.monotonic() >= over_s:
                break
            records.append(run_and_say(kind, arguments.seed + number // len(kinds), reference, arguments.keep))
        if arguments.real:
            real = undisturbed_real(Path(scratch) / "real", REAL.rows)
            for seed, kind in itertools.product(range(arguments.real), REAL_KINDS):
                records.append(run_and_say(kind, arguments.seed + seed, real, arguments.keep))
    minutes = (time.monotonic() - began_s) / 60
    if arguments.output is not None:
        write_document(arguments.output, document_of(records, minutes=minutes))
    if arguments.into is not None:
        again = document_of(records, minutes=minutes)
        write_document(arguments.into, with_again(read_document(arguments.into), again))
    return show(records, minutes=minutes)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0, help="of the simulated engine's part")
    parser.add_argument("--least", type=int, default=1, help="times round, however long that takes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="kinds with this in their name")
    parser.add_argument(
        "--real", type=int, default=2, metavar="SEEDS", help="runs a kind with the real engine; 0: none"
    )
    parser.add_argument("--output", type=Path, help="where the JSON goes, e.g. docs/kill-matrix.json")
    parser.add_argument("--into", type=Path, help="a JSON file of the same commit: all runs of these kinds in it go")
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()) / "bakehouse-chaos")
    return parser.parse_args()


def run_and_say(kind: Kind, seed: int, reference: list[dict[str, Any]], keep: Path) -> RunRecord:
    """One run, and a line about it on stderr."""
    record = run_once(kind, seed=seed, undisturbed=reference, keep=keep)
    said = "; ".join(record.broken) or record.void or "; ".join(record.effects)
    word = "WRONG" if record.broken else "void" if record.void else "ran"
    print(f"{word} {kind.name}, seed {seed}, {record.seconds:.0f} s: {said}", file=sys.stderr, flush=True)
    return record


def document_of(records: Sequence[RunRecord], *, minutes: float) -> dict[str, Any]:
    """The JSON: commit, machine, every run."""
    return {
        "commit": commit(),
        "command": "python -m " + " ".join(sys.orig_argv[2:]),
        "machine": {"cpus": cpus()},
        "minutes": round(minutes),
        "runs": [record.to_json() for record in records],
    }


def with_again(document: dict[str, Any], again: dict[str, Any]) -> dict[str, Any]:
    """`document` with the kinds that were run again. Raises `ValueError` for runs of another commit."""
    if document["commit"].rstrip("+") != again["commit"].rstrip("+"):
        raise ValueError(f"these are runs of {again['commit']}, those of {document['commit']}")
    kinds = {(run["fault"], run["process"]) for run in again["runs"]}
    kept = [run for run in document["runs"] if (run["fault"], run["process"]) not in kinds]
    head = {"command": f"{document['command']}; {again['command']}", "minutes": document["minutes"] + again["minutes"]}
    return document | head | {"runs": kept + again["runs"]}


def show(records: Sequence[RunRecord], *, minutes: float) -> int:
    """The table on stdout; 1 when a line of it is not as it must be."""
    figures = figures_of(records)
    print(
        f"chaos at {commit()}: {len(records)} runs in {minutes:.0f} min; redo and still in s, tokens made / delivered"
    )
    print_row("", SHORT)
    for line in figures:
        print_row(line.kind.name, line.cells()[2:])
    for line in figures:
        for miss in line.misses:
            print(f"MISSED {line.kind.name}: {miss}")
    return 1 if any(line.misses for line in figures) else 0


def print_row(name: str, cells: Sequence[str]) -> None:
    """One line of the table, its columns under one another."""
    print(f"{name:<48}" + "".join(f"{cell:>{max(6, len(head) + 1)}}" for cell, head in zip(cells, SHORT, strict=True)))


if __name__ == "__main__":
    sys.exit(main())
