"""Collectors that stand still before a step, are replaced, and go on: they write nothing more and end with code 3.

The lock ends with its process, so a frozen collector keeps its job, and a second one is refused. It can be replaced
only where its lock file is: removed by hand or by a cleaner, or restored from a backup. Then the epoch has to do.
"""

import shutil
import signal
import socket
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from common.errors import StoppedError
from producer.collector import Collector
from producer.job_directory import JobDirectory
from producer.job_lock import read_holder
from tests.collecting import Bench, Running, quick_settings, write_input
from tests.faults.freezing import await_frozen, freezing_command, thaw
from tests.integration.claiming import everything
from tests.jobs import write_config
from tests.processes import run_producer, started, started_worker
from tests.servers import VALKEY, Server
from tests.waiting import wait_until

ROWS = 60
QUICK: dict[str, Any] = {"renew_s": 0.1, "expire_s": 0.6, "look_s": 0.1, "linger_s": 0.005, "publish_s": 0.05}

POINTS = [
    pytest.param("producer.journal:Journal.prepare", 1, id="before the journal has its owner"),
    pytest.param("producer.journal:Journal.take", 1, id="Redis has the epoch, the journal not"),
    pytest.param("common.claims:Claims.offer", 2, id="journaled, not offered"),
    pytest.param("producer.journal:Journal.writing", 4, id="received, before the commit"),
    pytest.param("common.claims:Claims.drop_entries", 2, id="committed, not deleted in Redis"),
    pytest.param("common.claims:Claims.close", 1, id="deleted, not closed"),
    pytest.param("producer.output:Output.write", 2, id="closed, not in the ordered file"),
    pytest.param("producer.output:Output.sync", 3, id="in the ordered file, not synced"),
]
POINTS_OF_THE_JOURNAL = [
    pytest.param("producer.output:os.ftruncate", 1, id="before a file's tail is cut"),
    pytest.param("producer.journal:Journal.settle", 2, id="received, not committed"),
]
"""Inside a transaction: a frozen process holds the journal itself, whatever becomes of its lock file."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with one worker on the simulated engine."""
    folder = tmp_path_factory.mktemp("node")
    server = Server(VALKEY, folder / "data").start()
    flags = (
        "--engine",
        "sim",
        "--sim-seconds",
        "0.02",
        "--served-model-name",
        "m",
        "--config",
        write_config(folder / "quick.yaml", **QUICK),
    )
    with started_worker(server, *flags, log=folder / "worker.log"):
        yield server
    server.stop()


@pytest.fixture
def bench(tmp_path: Path, server: Server) -> Bench:
    """A job that a first collector has begun: a third of its results are in the ordered file."""
    settings = quick_settings(server, max_concurrency=16)  # so that most of it is still to be fed
    bench = Bench(tmp_path, server, write_input(tmp_path / "in.jsonl", ROWS), settings=settings)
    begun = Running(bench.collector())
    await_results(bench, 20)
    begun.collector.stop()
    wait_until(lambda: not begun.alive(), timeout_s=10, description="the first collector has stopped")
    return bench


def collect(bench: Bench) -> list[object]:
    """The arguments of `producer collect` for the bench's job."""
    places = (
        "--jobs",
        bench.jobs,
        "--redis-url",
        bench.server.url,
        "--config",
        write_config(bench.jobs.parent / "quick.yaml", **QUICK),
    )
    return ["collect", bench.job, *places]


def await_results(bench: Bench, at_least: int) -> None:
    """Wait for lines of the ordered file."""
    output = bench.directory.output_path
    wait_until(
        lambda: output.exists() and output.read_bytes().count(b"\n") >= at_least,
        timeout_s=20,
        description=f"{at_least} results",
    )


def state(bench: Bench) -> dict[str, object]:
    """Everything that a zombie could spoil: the journal, both files, and what Redis has of the job."""
    with closing(sqlite3.connect(f"file:{bench.directory.journal_path}?mode=ro", uri=True)) as journal:
        tables = [row[0] for row in journal.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        rows = {name: sorted(journal.execute(f"SELECT * FROM {name}"), key=repr) for name in tables}
    files = {path.name: path.read_bytes() for path in (bench.directory.output_path, bench.directory.errors_path)}
    mine = {key: value for key, value in everything(bench.server.client()).items() if bench.job.encode() in key}
    return {**rows, **files, "redis": mine}


@contextmanager
def standing_still(bench: Bench, target: str, number: int) -> Iterator["subprocess.Popen[bytes]"]:
    """A collector of the job that has stopped itself at that point, and whose lock file is then replaced."""
    log = zombie_log(bench)
    with started(freezing_command(target, number, *collect(bench)), log=log) as zombie:
        try:
            await_frozen(zombie, words=log.read_text)
            second = run_producer(*collect(bench))
            assert second.returncode == 2, second.stderr
            assert f"host {socket.gethostname()}, pid {zombie.pid}" in second.stderr
            bench.directory.lock_path.unlink()
            yield zombie
        finally:
            zombie.send_signal(signal.SIGCONT)


def zombie_log(bench: Bench) -> Path:
    """What the frozen collector says."""
    return bench.jobs.parent / "zombie.log"


@pytest.mark.parametrize(("target", "number"), POINTS)
def test_a_frozen_collector_that_was_replaced_changes_nothing(bench: Bench, target: str, number: int) -> None:
    with standing_still(bench, target, number) as zombie:
        assert bench.run().exit_code == 0
        bench.check_whole(ROWS)
        before = state(bench)
        thaw([zombie.pid])
        assert zombie.wait(20) == 3, zombie_log(bench).read_text()
    assert "newer collector" in zombie_log(bench).read_text()
    after = state(bench)
    if "Journal.prepare" in target or "Journal.take" in target:
        before.pop("redis"), after.pop("redis")  # it may still ask for the epoch that was free when it last looked
    assert after == before


@pytest.mark.parametrize(("target", "number"), [*POINTS[::3], *POINTS_OF_THE_JOURNAL])
def test_a_frozen_collector_goes_on_while_another_begins(bench: Bench, target: str, number: int) -> None:
    """One of the two gets the job, or each sees the other and leaves it to the next one; what is written is right."""
    with standing_still(bench, target, number) as zombie:
        other = Running(bench.collector())
        wait_until(lambda: read_holder(bench.directory.lock_path), timeout_s=10, description="the other has the lock")
        thaw([zombie.pid])
        assert {exit_code_of(other), zombie.wait(20)} <= {0, 3}, zombie_log(bench).read_text()
    assert bench.run().counts.done == ROWS
    bench.check_whole(ROWS)


@pytest.mark.parametrize(("target", "number"), [POINTS[3], POINTS[4], POINTS[6]])
def test_a_frozen_collector_whose_directory_was_copied(
    bench: Bench, server: Server, tmp_path: Path, target: str, number: int
) -> None:
    """As by a snapshot of its machine: the copy has a lock and a journal of its own, and finishes the job."""
    with standing_still(bench, target, number) as zombie:
        shutil.copytree(bench.jobs, tmp_path / "copies")
        copied = JobDirectory.open(tmp_path / "copies", bench.job)
        client = server.client()
        assert Collector(copied, settings=bench.settings, client=client).run(until="done").exit_code == 0
        before = bench.directory.output_path.read_bytes()
        thaw([zombie.pid])
        assert zombie.wait(20) == 2, zombie_log(bench).read_text()
    assert "old copy" in zombie_log(bench).read_text()
    assert bench.directory.output_path.read_bytes() == before
    bench.check_whole(ROWS)


def exit_code_of(running: Running) -> int:
    """What its command would end with."""
    try:
        return running.join().exit_code
    except StoppedError as error:
        return error.exit_code
