"""The fleet against the bare engine: the same engine, flags and rows, sides in turn, tokens a second.

Three sides: the fleet (one worker, warm; the clock runs from the first request fed to the last result written, as the
job's summary gives it), the bare engine fed all rows at once, and the bare engine fed micro-batches of 32 one by one.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.report import Bound, cpus, finish, print_table
from benchmarks.rows import write_heavy_tailed
from tests.processes import SMALL_MODEL, environment, run_producer, started_worker
from tests.servers import VALKEY, Server
from worker.engines.vllm_env import engine_environment

FLAGS = ("--max-model-len", "2048", "--enforce-eager", "--kv-cache-memory-bytes", "1G", "--max-num-seqs", "64")
MODEL = "small"
LEAST_OF_ALL_AT_ONCE = 0.90
LEAST_OF_ONE_BY_ONE = 1.6
TOKENS_WITHIN = 0.005


@dataclass
class Side:
    """One way to run the rows: seconds and output tokens of each repeat."""

    name: str
    seconds: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)

    def add(self, measured: dict[str, Any]) -> None:
        """Note one repeat and say it."""
        self.seconds.append(measured["seconds"])
        self.tokens.append(measured["tokens"])
        print(f"  {self.name}: {measured['tokens']} tokens in {measured['seconds']:.1f} s", file=sys.stderr)

    def rates(self) -> list[float]:
        """Tokens a second of each repeat."""
        return [tokens / seconds for tokens, seconds in zip(self.tokens, self.seconds, strict=True)]


class Bare:
    """The bare engine's process."""

    def __init__(self, rows: Path, *, log: Path) -> None:
        command = [sys.executable, "-m", "benchmarks.bare_engine", str(SMALL_MODEL), MODEL, str(rows), "--", *FLAGS]
        self.process = subprocess.Popen(
            command,
            env={**environment(), **engine_environment(environment(), accelerator=False, cores=cpus(), workers=2)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log.open("wb"),
            text=True,
        )
        self.answer()

    def answer(self) -> dict[str, Any]:
        """The next JSON line it says; other lines are the engine's chatter."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                said: dict[str, Any] = json.loads(line)
                return said
        raise SystemExit("the bare engine ended")

    def run(self, command: str) -> dict[str, Any]:
        """One measurement."""
        assert self.process.stdin is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self.answer()

    def stop(self) -> None:
        """End it."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(60)


def main() -> int:
    """Measure all sides in turn and report; 1 when a bound is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    sides = Side("fleet"), Side("all at once"), Side("32 one by one")
    with tempfile.TemporaryDirectory(prefix="bh-engine-") as scratch, ExitStack() as open_:
        folder = Path(scratch)
        rows = folder / "rows.jsonl"
        expected = write_heavy_tailed(rows, arguments.rows, model=MODEL)
        server = Server(VALKEY, folder / "valkey").start()
        open_.callback(server.stop)
        bare = Bare(rows, log=folder / "bare.log")
        open_.callback(bare.stop)
        worker = ("--model", SMALL_MODEL, "--served-model-name", MODEL, "--log-level", "warning", "--", *FLAGS)
        open_.enter_context(started_worker(server, *worker, log=folder / "worker.log"))
        run_fleet(server, rows, folder / "warm-up")
        bare.run("all")
        for repeat in range(arguments.repeats):
            print(f"repeat {repeat + 1} of {arguments.repeats}", file=sys.stderr)
            sides[0].add(run_fleet(server, rows, folder / str(repeat)))
            sides[1].add(bare.run("all"))
            sides[2].add(bare.run("batches 32"))
    return report(sides, expected)


def run_fleet(server: Server, rows: Path, folder: Path) -> dict[str, Any]:
    """The rows as one job on the warm worker: seconds and output tokens from its summary."""
    arguments = (
        "run",
        rows,
        "-o",
        folder / "out.jsonl",
        "--redis-url",
        server.url,
        "--jobs",
        folder / "jobs",
        "--json",
    )
    folder.mkdir()
    ended = run_producer(*arguments, timeout_s=900)
    if ended.returncode != 0:
        raise SystemExit(f"producer run ended with {ended.returncode}:\n{ended.stderr[-2000:]}")
    summary = json.loads(ended.stdout)
    return {"seconds": summary["elapsed_s"], "tokens": summary["completion_tokens"]}


def report(sides: tuple[Side, Side, Side], expected: int) -> int:
    """Table, bounds and JSON line."""
    fleet, at_once, one_by_one = sides
    rows = [
        [side.name, f"{statistics.median(side.rates()):.0f}", " ".join(f"{s:.1f}" for s in side.seconds)]
        for side in sides
    ]
    print_table(f"{expected} output tokens a repeat", ["side", "median tokens/s", "seconds"], rows)
    off = max(abs(tokens - expected) / expected for side in sides for tokens in side.tokens)
    bounds = [
        Bound("fleet / all at once", paired(fleet, at_once), least=LEAST_OF_ALL_AT_ONCE),
        Bound("fleet / micro-batches of 32 one by one", paired(fleet, one_by_one), least=LEAST_OF_ONE_BY_ONE),
        Bound("token totals differ by", off, most=TOKENS_WITHIN),
    ]
    return finish(bounds, {"sides": {side.name: {"seconds": side.seconds, "tokens": side.tokens} for side in sides}})


def paired(one: Side, other: Side) -> float:
    """The median of `one`'s rate over `other`'s, repeat by repeat."""
    return statistics.median(a / b for a, b in zip(one.rates(), other.rates(), strict=True))


if __name__ == "__main__":
    sys.exit(main())
