"""The bare engines as the benchmark drives them: one process a model, all told at once."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.engine.cpu import FRONT, cpu_s, spent
from benchmarks.engine.measured import Measured, tail_s
from benchmarks.engine.setup import GENERATOR, Setup
from benchmarks.engine.workloads import AT_ONCE, BY_8, BY_32, KEPT, RUN_BATCH, salted

END_S = 60


class BareProcess:
    """One bare engine."""

    def __init__(self, name: str, setup: Setup, *, log: Path) -> None:
        """It starts; `answer` waits until it is up."""
        command = [sys.executable, "-m", "benchmarks.engine.bare_process", str(setup.model), name, "--"]
        with log.open("wb") as errors:
            self.process = subprocess.Popen(
                [*command, *setup.flags(name)],
                env=setup.variables(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self._log = log

    def answer(self) -> dict[str, Any]:
        """The next JSON line it says; other lines are the engine's chatter."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                said: dict[str, Any] = json.loads(line)
                return said
        raise SystemExit(f"the bare engine ended:\n{self._log.read_text(errors='replace')[-3000:]}")

    def tell(self, command: str) -> None:
        """Begin a measurement."""
        assert self.process.stdin is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def stop(self) -> None:
        """End it."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Bare:
    """A bare engine for each model."""

    def __init__(self, setup: Setup, folder: Path) -> None:
        self._setup = setup
        self._folder = folder
        self._processes: dict[str, BareProcess] = {}

    def start(self, name: str) -> None:
        """Start the one of a model and wait until it is up."""
        self._processes[name] = BareProcess(name, self._setup, log=self._folder / f"bare-{name}.log")
        self._processes[name].answer()

    def run(self, side: str, rows: Path, *, models: Sequence[str], salt: str, first: int | None = None) -> Measured:
        """One measurement: the `first` rows or all, each model's on its own engine, all at the same time."""
        used = [self._processes[name] for name in models]
        shares = [self._share(rows, name, salt=salt, first=first) for name in models]
        pids = {process.process.pid: FRONT for process in used}
        before = cpu_s(pids)
        for process, share in zip(used, shares, strict=True):
            process.tell(self._command(side, share))
        said = [process.answer() for process in used]
        of_generator = said[list(models).index(GENERATOR)]
        return Measured(
            seconds=max(each["seconds"] for each in said),
            tokens=sum(each["tokens"] for each in said),
            steps=of_generator["steps"],
            tail_s=tail_s(of_generator["ended_s"], concurrency=self._setup.concurrency),
            cpu_s=spent(before, cpu_s(pids)),
        )

    def stop(self) -> None:
        """End all."""
        for process in self._processes.values():
            process.stop()

    def _share(self, rows: Path, name: str, *, salt: str, first: int | None) -> Path:
        return salted(rows, self._folder / f"{salt}-{name}.jsonl", salt=salt, model=name, first=first)

    def _command(self, side: str, rows: Path) -> str:
        ways = {
            AT_ONCE: ("all", 0),
            KEPT: ("kept", self._setup.kept),
            RUN_BATCH: ("run-batch", 0),
            BY_32: ("batches", 32),
            BY_8: ("batches", 8),
        }
        way, size = ways[side]
        return f"{way} {rows} {size}"
