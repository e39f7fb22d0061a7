"""The fleet against the bare engine: the same flags, rows and machine, sides in turn, tokens a second.

The fleet is one warm worker; its clock runs from the first request fed to the last result written, as the job's summary
gives it. The bare engine runs the same rows all at once, kept at 1.25x its concurrency by a semaphore, and through
vLLM's own run-batch; once, on a quarter of the rows, also in static micro-batches of 32 and of 8 one by one.
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

from benchmarks.pictures import draw_engine, draw_trace
from benchmarks.report import Bound, cpus, finish, print_table
from benchmarks.rows import write_heavy_tailed
from benchmarks.trace import Trace, tracing
from tests.processes import SMALL_MODEL, environment, run_producer, started_worker
from tests.servers import VALKEY, Server
from worker.engines.vllm_env import engine_environment

CONCURRENCY = 64
FLAGS = (
    *("--max-model-len", "2048", "--enforce-eager", "--kv-cache-memory-bytes", "1G"),
    *("--max-num-seqs", str(CONCURRENCY)),
)
MODEL = "small"
ROWS = 1_000
"""At least three minutes a side on two cores."""
WARM_UP_ROWS = 128
LEAST_OF_FASTER = 0.97
LEAST_OF_RUN_BATCH = 0.98
LEAST_OF_ONE_BY_ONE = 1.8
TOKENS_WITHIN = 0.005
FLEET, AT_ONCE, KEPT, RUN_BATCH, BY_32, BY_8 = "fleet", "all at once", "kept at 1.25x", "run-batch", "by 32", "by 8"


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
        rate = measured["tokens"] / measured["seconds"]
        print(
            f"  {self.name}: {measured['tokens']} tokens in {measured['seconds']:.1f} s, {rate:.1f}/s", file=sys.stderr
        )

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
    """Measure all sides in turn, or trace one run of the fleet, and report; 1 when a bound is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--trace", type=Path, help="one run of the fleet alone; requests in flight as JSON lines")
    parser.add_argument("--picture", type=Path, help="draw what was measured")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bh-engine-") as scratch, ExitStack() as open_:
        folder = Path(scratch)
        rows = folder / "rows.jsonl"
        expected = write_heavy_tailed(rows, arguments.rows, model=MODEL)
        server = Server(VALKEY, folder / "valkey").start()
        open_.callback(server.stop)
        if arguments.trace is not None:
            return trace(server, rows, folder, arguments)
        bare = Bare(rows, log=folder / "bare.log")
        open_.callback(bare.stop)
        open_.enter_context(
            started_worker(server, *worker_arguments("--log-level", "warning"), *FLAGS, log=folder / "worker.log")
        )
        sides = measure(server, bare, rows, folder, arguments)
    if arguments.picture is not None:
        draw_engine(arguments.picture, {name: side.rates() for name, side in sides.items()})
    return report(sides, expected, arguments.rows)


def worker_arguments(*more: object) -> tuple[object, ...]:
    """The worker's own arguments, before vLLM's flags."""
    return ("--model", SMALL_MODEL, "--served-model-name", MODEL, *more, "--")


def measure(server: Server, bare: Bare, rows: Path, folder: Path, arguments: argparse.Namespace) -> dict[str, Side]:
    """Every side's repeats; which one begins changes from repeat to repeat."""
    sides = {name: Side(name) for name in (FLEET, AT_ONCE, KEPT, RUN_BATCH, BY_32, BY_8)}
    commands = {AT_ONCE: "all", KEPT: f"kept {CONCURRENCY * 5 // 4}", RUN_BATCH: "run-batch"}
    warm_up(server, folder)
    bare.run(f"batches {CONCURRENCY} {WARM_UP_ROWS}")
    turns = (FLEET, AT_ONCE, KEPT, RUN_BATCH)
    for repeat in range(arguments.repeats):
        print(f"repeat {repeat + 1} of {arguments.repeats}", file=sys.stderr)
        first = repeat % len(turns)
        for name in (*turns[first:], *turns[:first]):
            is_fleet = name == FLEET
            sides[name].add(run_fleet(server, rows, folder / str(repeat)) if is_fleet else bare.run(commands[name]))
    for name, size in ((BY_32, 32), (BY_8, 8)):
        sides[name].add(bare.run(f"batches {size} {arguments.rows // 4}"))
    return sides


def trace(server: Server, rows: Path, folder: Path, arguments: argparse.Namespace) -> int:
    """One run of the fleet with its requests in flight, ten samples a second."""
    more = worker_arguments("--log-level", "info", "--metrics-port", 0)
    log = folder / "worker.log"
    with started_worker(server, *more, *FLAGS, log=log):
        warm_up(server, folder)
        with tracing(log, rows=arguments.rows) as samples:
            measured = run_fleet(server, rows, folder / "traced")
    found = Trace(samples, rows=arguments.rows, concurrency=CONCURRENCY)
    found.write(arguments.trace)
    if arguments.picture is not None:
        draw_trace(arguments.picture, found.samples, concurrency=CONCURRENCY)
    under = Bound(f"samples under {CONCURRENCY} in flight with {2 * CONCURRENCY} rows left", found.under(), most=0)
    enough = Bound("samples a second", len(found.samples) / measured["seconds"], least=9.0)
    print_table("trace", ["samples", "first full after s"], [[str(len(found.samples)), f"{found.full_after_s():.2f}"]])
    return finish([under, enough], {"trace": measured})


def warm_up(server: Server, folder: Path) -> None:
    """A short job first: what an engine does once, it has done."""
    rows = folder / "warm-up.jsonl"
    write_heavy_tailed(rows, WARM_UP_ROWS, model=MODEL)
    run_fleet(server, rows, folder / "warm-up")


def run_fleet(server: Server, rows: Path, folder: Path) -> dict[str, Any]:
    """The rows as one job on the warm worker: seconds and output tokens from its summary."""
    place = ("--redis-url", server.url, "--jobs", folder / "jobs")
    folder.mkdir()
    ended = run_producer("run", rows, "-o", folder / "out.jsonl", *place, "--json", timeout_s=1_800)
    if ended.returncode != 0:
        raise SystemExit(f"producer run ended with {ended.returncode}:\n{ended.stderr[-2000:]}")
    summary = json.loads(ended.stdout)
    return {"seconds": summary["elapsed_s"], "tokens": summary["completion_tokens"]}


def report(sides: dict[str, Side], expected: int, rows: int) -> int:
    """Table, bounds and JSON line."""
    table = [
        [side.name, f"{statistics.median(side.rates()):.0f}", " ".join(f"{s:.1f}" for s in side.seconds)]
        for side in sides.values()
    ]
    print_table(f"{rows} rows, {expected} output tokens a repeat", ["side", "median tokens/s", "seconds"], table)
    rates = {name: side.rates() for name, side in sides.items()}
    faster = [max(pair) for pair in zip(rates[AT_ONCE], rates[KEPT], strict=True)]
    whole = [side for name, side in sides.items() if name not in (BY_32, BY_8)]
    off = max(abs(tokens - expected) / expected for side in whole for tokens in side.tokens)
    # the last repeat of the fleet is their neighbour in time: over an hour a shared machine changes its speed
    by_32, by_8 = (rates[FLEET][-1] / rates[name][0] for name in (BY_32, BY_8))
    bounds = [
        Bound("fleet / faster of all at once and kept", paired(rates[FLEET], faster), least=LEAST_OF_FASTER),
        Bound("fleet / run-batch", paired(rates[FLEET], rates[RUN_BATCH]), least=LEAST_OF_RUN_BATCH),
        Bound("fleet / micro-batches of 32 one by one", by_32, least=LEAST_OF_ONE_BY_ONE),
        Bound("fleet / micro-batches of 8 one by one", by_8, least=LEAST_OF_ONE_BY_ONE),
        Bound("token totals differ by", off, most=TOKENS_WITHIN),
    ]
    figures = {side.name: {"seconds": side.seconds, "tokens": side.tokens} for side in sides.values()}
    ratios = {"all at once": paired(rates[FLEET], rates[AT_ONCE]), "kept": paired(rates[FLEET], rates[KEPT])}
    return finish(bounds, {"rows": rows, "sides": figures, "ratios": ratios})


def paired(one: list[float], other: list[float]) -> float:
    """The median of `one` over `other`, repeat by repeat."""
    return statistics.median(a / b for a, b in zip(one, other, strict=True))


if __name__ == "__main__":
    sys.exit(main())
