"""What the pipeline itself can carry: rows through Redis, Celery and the journal with an engine that costs nothing.

Every row is journaled and synced. The clock runs over the whole command `producer run`, its start included; one worker
is warm beforehand, as in a fleet.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.report import Bound, finish, print_table
from benchmarks.rows import write_padded
from benchmarks.sampling import Sampler
from tests.processes import environment, producer_command, started_worker
from tests.servers import VALKEY, Server

LEAST_PER_S = 6_000
MODEL = "zero-cost"


def main() -> int:
    """Run it once and report; 1 when the bound is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--row-bytes", type=int, default=1_024)
    parser.add_argument("--batch-size", type=int, default=32)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bh-pipeline-") as scratch:
        folder = Path(scratch)
        requests, output = folder / "requests.jsonl", folder / "results.jsonl"
        write_padded(requests, arguments.rows, model=MODEL, row_bytes=arguments.row_bytes)
        server = Server(VALKEY, folder / "valkey").start()
        try:
            seconds, sampler = measure(server, folder, requests, output, arguments.batch_size)
        finally:
            server.stop()
        with output.open("rb") as results:
            written = sum(1 for _ in results)
    if written != arguments.rows:
        sys.exit(f"{written} results for {arguments.rows} rows")
    print_table("processes", ["process", "CPU s", "peak MiB"], sampler.rows())
    rate = arguments.rows / seconds
    figures = {
        "rows": arguments.rows,
        "seconds": round(seconds, 2),
        "processes": {role: {"cpu_s": cpu, "peak_mib": peak} for role, cpu, peak in sampler.rows()},
    }
    return finish([Bound("requests/s", rate, least=LEAST_PER_S)], figures)


def measure(server: Server, folder: Path, requests: Path, output: Path, batch_size: int) -> tuple[float, Sampler]:
    """Seconds of `producer run` against a warm worker, and what each process used."""
    worker = ("--engine", "sim", "--sim-profile", "zero", "--sim-places", 512)
    run = (
        "run",
        requests,
        "-o",
        output,
        "--redis-url",
        server.url,
        "--jobs",
        folder / "jobs",
        "--batch-size",
        batch_size,
    )
    assert server.process is not None
    with started_worker(server, *worker, log=folder / "worker.log") as supervisor:
        began = time.monotonic()
        with (folder / "run.log").open("wb") as log:
            producer = subprocess.Popen(producer_command(*run), env=environment(), stderr=log, stdout=log)
        with Sampler({"producer": producer.pid, "worker": supervisor.pid, "redis": server.process.pid}) as sampler:
            code = producer.wait()
        seconds = time.monotonic() - began
    if code != 0:
        sys.exit(f"producer run ended with {code}:\n{(folder / 'run.log').read_text()[-2000:]}")
    return seconds, sampler


if __name__ == "__main__":
    sys.exit(main())
