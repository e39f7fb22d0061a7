"""Cases of real-world trouble that come with many lines: memory of every process, and of a server that has little.

A fifth of the cases' lines; `FULL_CASES=1` gives all of them, as `make cases` does.
"""

import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from common import keys
from producer.journal_reader import Checkpoint, read_checkpoint
from tests.case_inputs import SHARE, big_case
from tests.case_node import Node
from tests.jobs import only_job, write_config
from tests.processes import memory_of
from tests.waiting import wait_until

pytestmark = [pytest.mark.case, pytest.mark.timeout(900)]

MIB = 1024 * 1024
ZERO_COST = ("--sim-profile", "zero", "--sim-places", 128, "--served-model-name", "test-model")
WINDOW = 8_192 // SHARE
"""Requests: the default for the whole case, and as large a share of fewer lines."""


def test_case_a17_a_very_large_file(tmp_path: Path) -> None:
    """Memory stays flat, and the first result is in the file before a twentieth of the input is read."""
    case = big_case(tmp_path, "A17", lines=200_000, pad=1_500)
    config = write_config(tmp_path / "window.yaml", window_requests=WINDOW)
    with closing(Node(tmp_path, case, *ZERO_COST)) as at:
        worker = at.process_of(at.worker())
        run = at.start("--config", config)
        wait_until(
            lambda: run.poll() is not None or (at.output.exists() and at.output.stat().st_size),
            timeout_s=60,
            description="a result is in the ordered file",
        )
        assert stands(at).input_offset <= case.path.stat().st_size / 20
        peaks: dict[int, int] = {}

        def look() -> bool:
            for pid in (run.pid, worker.pid):
                peaks[pid] = max(peaks.get(pid, 0), memory_of(pid).peak_bytes)
            return run.poll() is not None

        wait_until(look, timeout_s=600, description="the run ends")
        at.check(run.returncode)
        assert max(peaks.values()) <= 300 * MIB
        assert at.server.client().info("memory")["used_memory_peak"] <= 256 * MIB


def test_case_a23bc_a_server_with_little_memory(tmp_path: Path) -> None:
    """More than it holds waits to be fed: the producer slows down, the server refuses and evicts nothing."""
    case = big_case(tmp_path, "A23", lines=100_000, pad=1_900, packs=False)
    config = write_config(tmp_path / "window.yaml", window_requests=1_000_000)
    with closing(Node(tmp_path, case, *ZERO_COST)) as at:
        client, limit = at.server.client(), 32 * MIB
        client.config_set("maxmemory", limit)
        run = at.start("--config", config, "--model", "test-model")
        wait_until(
            lambda: client.info("memory")["used_memory"] > 0.8 * limit, timeout_s=120, description="it is nearly full"
        )
        waiting = stands(at).counts
        at.worker()
        longest, most = watch(at, run)
        at.check(run.returncode)
        assert waiting.total is None, "all of it was fed at once"
        assert 0 < longest <= 2 * most, "the stream only grew"
        facts = client.info()
        assert facts["used_memory_peak"] <= limit
        assert facts["evicted_keys"] == 0
        check_gone(at)


def stands(at: Node) -> Checkpoint:
    """Where the job stands."""
    checkpoint = read_checkpoint(at.jobs / only_job(at.jobs) / "journal.sqlite")
    assert checkpoint is not None
    return checkpoint


def watch(at: Node, run: "subprocess.Popen[bytes]") -> tuple[int, int]:
    """Until the run ends: the most entries in the stream, and the most requests that were fed and had no result."""
    client, stream = at.server.client(), keys.results(only_job(at.jobs))
    longest = most = 0

    def look() -> bool:
        nonlocal longest, most
        longest = max(longest, int(client.xlen(stream)))
        counts = stands(at).counts
        most = max(most, counts.fed - counts.done)
        return run.poll() is not None

    wait_until(look, timeout_s=600, description="the run ends")
    return longest, most


def check_gone(at: Node) -> None:
    """Of the job's keys only `info` is left, with a lifetime, and no hint waits; nobody made a consumer group."""
    client, job = at.server.client(), only_job(at.jobs)
    assert "cmdstat_xgroup|create" not in client.info("commandstats")
    assert [*client.scan_iter(keys.prefix(job) + "*")] == [keys.info(job).encode()]
    assert 0 < client.ttl(keys.info(job)) <= keys.DONE_LIFETIME_S
    wait_until(
        lambda: not [*client.scan_iter(keys.QUEUE_PREFIX + "*")], timeout_s=10, description="the worker drops old hints"
    )
