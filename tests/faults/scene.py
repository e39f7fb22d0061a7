"""A job at work: one server, one worker on the simulated engine, one `producer run`, and what is seen of them.

with at_work(server, tmp_path) as scene:
    ...                                     # a fault, with proof of its effect
    scene.check_flow()                      # new results within 30 s
    scene.check_whole()                     # exit 0; every result once, in order, the same as undisturbed
"""

import json
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from common import keys
from tests.jobs import only_job, wait_for_results, write_requests
from tests.processes import producer_command, read_results, run_producer, started, started_worker
from tests.servers import Server
from tests.waiting import wait_until

ROWS = 64
FLOW_S = 30.0
"""Within so long after any fault, new results come."""
QUICK = {"BAKEHOUSE_EXPIRE_S": "6", "BAKEHOUSE_RENEW_S": "2", "BAKEHOUSE_LOOK_S": "0.5"}
"""Knobs by which everything is noticed and mended three times as fast."""
SIMULATED = ("--engine", "sim", "--sim-seconds", "0.06", "--sim-places", "8")
"""8 requests of 8 tokens take half a second: the rows take 4 s."""


class Scene:
    """What a test does to a job at work, and sees of it."""

    def __init__(self, server: Server, folder: Path, *, rows: int, url: str, source: Path | None) -> None:
        self.server = server
        self.url = url
        self.rows = rows
        self.folder = folder
        self.source = source or write_requests(folder / "in.jsonl", rows)
        self.output = folder / "out.jsonl"
        self.jobs = folder / "jobs"
        self.run_log, self.worker_log = folder / "run.log", folder / "worker.log"
        self.run: subprocess.Popen[bytes]
        self.worker: subprocess.Popen[bytes]

    def arguments(self, *more: object) -> list[object]:
        """Of `producer run` for this job."""
        where = ["-o", self.output, "--jobs", self.jobs, "--redis-url", self.url, "--batch-size", 4]
        return ["run", self.source, *where, *more]

    @property
    def job(self) -> str:
        """Its id."""
        return only_job(self.jobs)

    def durable(self) -> int:
        """Results in the ordered file."""
        return self.output.read_bytes().count(b"\n") if self.output.exists() else 0

    def reach(self, rows: int) -> None:
        """Wait until so many results are in the ordered file, and no more than that by much."""
        wait_for_results(self.output, self.run, at_least=rows, log=self.run_log)
        assert self.durable() < self.rows, "the job is over: nothing is left to disturb"

    def check_flow(self, *, within_s: float = FLOW_S) -> float:
        """Wait for a new result; returns how many seconds it took."""
        began_s, before = time.monotonic(), self.durable()
        wait_until(
            lambda: self.durable() > before or self.run.poll() is not None,
            timeout_s=within_s,
            description=f"a new result beyond {before}\n{self.words()}",
        )
        assert self.durable() > before or self.run.poll() == 0, self.words()
        return time.monotonic() - began_s

    def check_whole(self, *, timeout_s: float = 90, exit_code: int = 0) -> None:
        """The run ends well, with every result once, in order, and as in a run that nothing disturbs."""
        assert self.run.wait(timeout_s) == exit_code, self.words()
        self.check_results()
        client = self.server.client()
        assert list(client.scan_iter(match=keys.prefix(self.job) + "*")) == [keys.info(self.job).encode()]
        assert client.hget(keys.JOBS, self.job) is None, "a finished job still stands among the live ones"
        assert self.worker.poll() is None, self.words()

    def check_results(self) -> None:
        """Every result is there once, in order, and as in a run that nothing disturbs."""
        results = read_results(self.output)
        assert [result["line"] for result in results] == list(range(1, self.rows + 1))
        assert comparable(results) == undisturbed(self.rows)

    def words(self) -> str:
        """The end of what both said."""
        return "\n".join(log.read_text(errors="replace")[-2500:] for log in (self.run_log, self.worker_log))

    def events(self, name: str) -> list[dict[str, Any]]:
        """Log lines of one event of the worker."""
        lines = self.worker_log.read_text(errors="replace").splitlines()
        parsed = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
        return [line for line in parsed if line.get("event") == name]


@contextmanager
def at_work(
    server: Server,
    folder: Path,
    *,
    url: str | None = None,
    rows: int = ROWS,
    source: Path | None = None,
    reach: int = 16,
    environment: Mapping[str, Any] | None = None,
    worker_flags: tuple[object, ...] = SIMULATED,
) -> Iterator[Scene]:
    """A job with `reach` results in its file.

    `url`: where its processes find the server, if not by its own address; `source`: its input, if not made-up requests;
    `environment`: of both processes.
    """
    scene = Scene(server, folder, rows=rows, url=url or server.url, source=source)
    flags = (*worker_flags, "--redis-url", scene.url)
    theirs: dict[str, Any] = {"XDG_CACHE_HOME": str(folder / "cache"), **(environment or {})}
    worker = started_worker(server, *flags, log=scene.worker_log, **theirs)
    with worker as scene.worker:
        run = started(producer_command(*scene.arguments()), log=scene.run_log, **theirs)
        with run as scene.run:
            scene.reach(reach)
            yield scene


@cache
def undisturbed(rows: int) -> list[dict[str, Any]]:
    """What the job's results are when nothing happens."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        source, output = write_requests(folder / "in.jsonl", rows), folder / "out.jsonl"
        ended = run_producer("run", source, "-o", output, "--jobs", folder / "jobs", "--engine", "sim")
        assert ended.returncode == 0, ended.stderr
        return comparable(read_results(output))


def comparable(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Results without what differs from run to run; the engine numbers and dates its answers."""
    for result in results:
        del result["id"], result["meta"], result["response"]["request_id"]
        del result["response"]["body"]["id"], result["response"]["body"]["created"]
    return results
