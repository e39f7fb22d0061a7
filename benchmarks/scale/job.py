"""One job on the fleet: `producer run` as a user gives it, and which worker ran each row from when to when."""

import json
import subprocess
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import orjson

from benchmarks.scale.cpu import Cpu, CpuMeter
from benchmarks.scale.fleet import Fleet
from benchmarks.scale.rows import write_rows
from benchmarks.scale.spans import SimWorker, Span
from common import keys
from tests.processes import environment, producer_command
from tests.waiting import wait_until

END_S = 1_800.0
LOOK_S = 1.0


class RowTimes(NamedTuple):
    """What its result says of a row; seconds since 1970."""

    worker: str
    fed_at: float
    taken_at: float
    ended_at: float


class Finished(NamedTuple):
    """A job at its end."""

    seconds: float
    """From the first line read to the last result in the ordered file, as its summary says."""
    fed_at: float
    """When its first row was fed, in seconds since 1970."""
    rows: list[RowTimes]
    cpu: Cpu

    def spans(self, lengths: Sequence[int], workers: Iterable[SimWorker]) -> list[Span]:
        """One span a row. A row's place was its own for as many steps as it has tokens, up to its end."""
        step_s = {worker.name: worker.step_s for worker in workers}
        return [
            Span(
                row.worker,
                row.ended_at - self.fed_at - tokens * step_s[row.worker],
                row.ended_at - self.fed_at,
                row.fed_at - self.fed_at,
                row.taken_at - self.fed_at,
            )
            for row, tokens in zip(self.rows, lengths, strict=True)
        ]


class Job:
    """A job that runs."""

    def __init__(self, fleet: Fleet, folder: Path, *, name: str, lengths: Sequence[int]) -> None:
        """Begin it."""
        self.output = folder / f"{name}.jsonl"
        self._name, self._client, self._rows = name, fleet.server.client(), len(lengths)
        self._summary, self._log = folder / f"{name}.json", folder / f"{name}.log"
        source = folder / f"{name}-in.jsonl"
        write_rows(source, lengths)
        place = ("--redis-url", fleet.server.url, "--jobs", folder / "jobs", "--job-id", name)
        command = producer_command("run", source, "-o", self.output, *place, "--json")
        self._meter = CpuMeter(fleet.processes())
        self.began_s, self.began_at = time.monotonic(), time.time()
        with self._summary.open("wb") as out, self._log.open("wb") as log:
            self._process = subprocess.Popen(command, env=environment(), stdout=out, stderr=log)
        self._meter.add("collector", self._process.pid)

    def await_done(self, share: float) -> None:
        """Block until its collector says that it has results for this share of the rows."""
        wait_until(
            lambda: self._over() or int(self._client.hget(keys.info(self._name), "done") or 0) >= share * self._rows,
            timeout_s=END_S,
            description=f"{share:.0%} of {self._name} is done",
        )
        self._meter.look()

    def await_first_line(self) -> None:
        """Block until the ordered file has a line."""
        wait_until(
            lambda: self._over() or (self.output.exists() and b"\n" in self.output.read_bytes()),
            timeout_s=END_S,
            description=f"{self._name} has a result",
        )
        self._meter.look()

    def finish(self) -> Finished:
        """Wait for its end; every row must have its good result, in order."""
        while not self._over(LOOK_S):
            self._meter.look()
        cpu = self._meter.read()
        if self._process.returncode != 0:
            raise SystemExit(f"{self._name} ended with {self._process.returncode}:\n{self._log.read_text()[-2000:]}")
        rows = self._read()
        elapsed_s = json.loads(self._summary.read_text())["elapsed_s"]
        return Finished(elapsed_s, min(row.fed_at for row in rows), rows, cpu)

    def _read(self) -> list[RowTimes]:
        rows = []
        with self.output.open("rb") as file:
            for number, line in enumerate(file):
                result = orjson.loads(line)
                meta = result["meta"]
                if result["custom_id"] != f"row-{number}" or result["error"]:
                    raise SystemExit(f"{self._name}: result {number} is wrong: {line[:500]!r}")
                taken_at = _seconds(meta["started_at"])
                rows.append(
                    RowTimes(meta["worker"], taken_at - meta["queue_s"], taken_at, _seconds(meta["finished_at"]))
                )
        if len(rows) != self._rows:
            raise SystemExit(f"{self._name}: {len(rows)} results for {self._rows} rows")
        return rows

    def _over(self, within_s: float = 0.0) -> bool:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(within_s)
        return self._process.returncode is not None


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
