"""Kill -9 of one process in the middle of a job, then the same command: every result once, in order."""

import signal
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from common.broker import make_client
from common.claims import Claims
from tests.jobs import await_durable, durable_results
from tests.processes import alive, descendants, producer_command, read_results, run_producer, started
from tests.waiting import wait_until

INPUT = Path(__file__).parent.parent / "data" / "cases" / "A20_two_hundred.jsonl"
SIMULATED = ("--engine", "sim", "--sim-seconds", "0.06", "--sim-places", "8", "--batch-size", "8")

pytestmark = pytest.mark.kill


def command_line(process: psutil.Process) -> str:
    """The command of `process`, empty when it has just ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def held_micro_batches(jobs: Path, root: int) -> int:
    """Micro-batches in the hands of a worker, asked of the embedded server below process `root`."""
    server = find(root, "valkey-server")
    arguments = server.cmdline()
    socket = next(word for word in arguments[1:] if word.endswith(".sock"))
    job = next(jobs.glob("*/journal.sqlite")).parent.name
    look = Claims(make_client(f"unix://{socket}")).look(job)
    return sum(seen.st == "HELD" for seen in look.micro_batches.values())


def find(root: int, word: str) -> psutil.Process:
    """The process below `root` whose command holds `word`."""
    return next(process for process in descendants(root) if word in command_line(process))


def find_worker(root: int) -> psutil.Process:
    """The worker process: its supervisor's only child, since Celery writes itself another command line."""
    (worker,) = find(root, "worker.cli").children()
    return worker


def find_server(root: int) -> psutil.Process:
    """The embedded server."""
    return find(root, "valkey-server")


@pytest.mark.parametrize(
    ("victim", "ends_with"),
    [
        pytest.param(find_worker, 0, id="worker"),
        pytest.param(psutil.Process, -signal.SIGKILL, id="collector"),
        pytest.param(find_server, 3, id="redis"),
    ],
)
def test_kill(tmp_path: Path, victim: Callable[[int], psutil.Process], ends_with: int) -> None:
    jobs, output = tmp_path / "jobs", tmp_path / "out.jsonl"
    arguments = ("run", INPUT, "-o", output, "--jobs", jobs, *SIMULATED)
    with started(producer_command(*arguments), log=tmp_path / "run.log") as run:
        await_durable(jobs, 20)
        below = descendants(run.pid)
        wait_until(lambda: held_micro_batches(jobs, run.pid) >= 1, timeout_s=10, description="a micro-batch is held")
        assert 20 <= durable_results(jobs) <= 180
        victim(run.pid).kill()
        assert run.wait(90) == ends_with, (tmp_path / "run.log").read_text()[-3000:]
        whole = output.read_bytes().rsplit(b"\n", 1)[0]
        wait_until(
            lambda: not any(alive(process) for process in below),
            timeout_s=20,
            description="no orphan is left",
        )
    again = run_producer(*arguments)
    assert again.returncode == 0, again.stderr[-3000:]
    results = read_results(output)
    assert [result["line"] for result in results] == list(range(1, 201))
    assert {result["response"]["status_code"] for result in results} == {200}
    assert output.read_bytes().startswith(whole), "a line that was durable has changed"
