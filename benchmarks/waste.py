"""What kills cost: tokens that the engines made to tokens in results, with a worker killed every 30 s.

3 workers on the simulated engine, 32 requests in flight each, heavy-tailed lengths with a mean of 2 s a request. A
token counts when it is made, also in a process that is killed before it publishes.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import psutil

from benchmarks.chaos.document import read_document, write_document
from benchmarks.report import Bound, finish
from benchmarks.rows import SEED, write_heavy_tailed
from common import keys
from tests.processes import await_gone, environment, live_workers, producer_command, started, worker_command
from tests.servers import VALKEY, Server
from tests.waiting import wait_until
from worker.engines.sim_tokens import TOKENS_VARIABLE, tokens_made

WORKERS = 3
IN_FLIGHT = 32
REQUEST_S = 2.0
MOST = 1.05
MODEL = "waste"


class Fleet:
    """The server, the workers, and the one that is killed next."""

    def __init__(self, server: Server) -> None:
        self.kills = 0
        self._server = server
        self._draw = random.Random(SEED)

    def await_ready(self) -> None:
        """Block until all workers are up."""
        wait_until(lambda: len(live_workers(self._server)) == WORKERS, timeout_s=60, description="all workers are up")

    def kill_one(self) -> None:
        """SIGKILL to one worker; its supervisor starts another."""
        client = self._server.client()
        name = self._draw.choice(sorted(live_workers(self._server)))
        process = psutil.Process(int(client.hget(name, "pid") or 0))
        held = int(client.hget(name, "in_flight") or 0)
        process.kill()
        await_gone([process])
        self.kills += 1
        print(f"kill {self.kills}: {name.removeprefix(keys.WORKER_PREFIX)} with {held} in flight", file=sys.stderr)


def main() -> int:
    """Run it and report; 1 when the bound is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--every-s", type=float, default=30.0, help="between two kills")
    parser.add_argument("--into", type=Path, help="a JSON file to add the figures to, e.g. docs/kill-matrix.json")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bh-waste-") as scratch:
        figures = measure(Path(scratch), minutes=arguments.minutes, every_s=arguments.every_s)
    if arguments.into is not None:
        write_document(arguments.into, {**read_document(arguments.into), "waste": figures})
    return finish([Bound("tokens made / tokens in results", figures["ratio"], most=MOST)], figures)


def measure(folder: Path, *, minutes: float, every_s: float) -> dict[str, Any]:
    """Run a job of so many minutes, with a kill every `every_s` seconds until they are over; its figures."""
    source, counts = folder / "in.jsonl", folder / "tokens"
    counts.mkdir()
    rows = round(60 * minutes * WORKERS * IN_FLIGHT / REQUEST_S)
    step_s = REQUEST_S * rows / write_heavy_tailed(source, rows, model=MODEL)
    server = Server(VALKEY, folder / "data").start()
    engine = ("--engine", "sim", "--model", MODEL, "--sim-places", IN_FLIGHT, "--sim-seconds", f"{step_s:.5f}")
    command = worker_command("start", "--redis-url", server.url, "--workers", WORKERS, *engine)
    variables = {TOKENS_VARIABLE: str(counts), "XDG_CACHE_HOME": str(folder / "cache")}
    fleet = Fleet(server)
    try:
        with redirect_stdout(sys.stderr), started(command, log=folder / "workers.log", **variables):
            fleet.await_ready()
            summary = run_and_kill(fleet, server, folder, every_s=every_s, kills=int(60 * minutes / every_s))
            made = tokens_made(counts)
    finally:
        server.stop()
    delivered = summary["completion_tokens"]
    figures = {"rows": rows, "minutes": minutes, "every_s": every_s, "kills": fleet.kills, "most": MOST}
    return {**figures, "made": made, "delivered": delivered, "ratio": made / delivered, "job_s": summary["elapsed_s"]}


def run_and_kill(fleet: Fleet, server: Server, folder: Path, *, every_s: float, kills: int) -> dict[str, Any]:
    """The job's summary; meanwhile a worker is killed every `every_s` seconds, `kills` times at most."""
    where = ("-o", folder / "out.jsonl", "--redis-url", server.url, "--jobs", folder / "jobs", "--json")
    with (folder / "run.log").open("wb") as log:
        job = subprocess.Popen(
            producer_command("run", folder / "in.jsonl", *where),
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=log,
        )
    try:
        while fleet.kills < kills and ended_within(job, every_s) is None:
            fleet.kill_one()
        said, _ = job.communicate()
    finally:
        job.kill()
        job.wait()
    if job.returncode != 0:
        raise SystemExit(f"the job ended with {job.returncode}:\n{(folder / 'run.log').read_text()[-2000:]}")
    summary: dict[str, Any] = json.loads(said)
    return summary


def ended_within(job: "subprocess.Popen[bytes]", seconds: float) -> int | None:
    """The job's exit code if it ends within so many seconds."""
    try:
        return job.wait(seconds)
    except subprocess.TimeoutExpired:
        return None


if __name__ == "__main__":
    sys.exit(main())
