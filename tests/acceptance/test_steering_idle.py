"""`worker start --exit-when-idle`: a node with nothing to do drains and ends with 0, and never with work in hand."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
import redis

from common import keys
from tests.jobs import check_whole, write_requests
from tests.processes import (
    await_gone,
    descendants,
    live_workers,
    producer_command,
    run_producer,
    started,
    started_worker,
    worker_command,
)
from tests.servers import Server
from tests.waiting import wait_until

LIMIT_S = 5


@contextmanager
def node(server: Server, *arguments: object, limit: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A node of simulated workers that beat often, and leave when they were idle for `limit`."""
    common = ("--engine", "sim", "--model", "m", "--exit-when-idle", limit)
    with started_worker(server, *common, *arguments, log=log, BAKEHOUSE_PRESENCE_S="0.2") as process:
        yield process


def idle_s(client: redis.Redis, server: Server) -> list[int]:
    """What each ready worker says."""
    return [int(client.hget(name, "idle_s") or 0) for name in live_workers(server)]


@pytest.mark.kill
def test_work_just_before_the_limit_keeps_a_node_and_its_dead_are_replaced(
    valkey: redis.Redis, valkey_server: Server, tmp_path: Path
) -> None:
    """One of two workers has work, the other none; one is killed with work in hand; only then nobody has any."""
    log, source, output = tmp_path / "worker.log", write_requests(tmp_path / "in.jsonl", 40), tmp_path / "out.jsonl"
    where = ("--redis-url", valkey_server.url, "--jobs", tmp_path / "jobs", "--batch-size", 4)
    slow = ("--workers", 2, "--sim-places", 2, "--sim-seconds", 0.06)
    with node(valkey_server, *slow, limit=f"{LIMIT_S}s", log=log) as process:
        wait_until(
            lambda: len(idle := idle_s(valkey, valkey_server)) == 2 and min(idle) >= LIMIT_S - 2,
            timeout_s=30,
            description="the node is about to leave",
        )
        with started(producer_command("run", source, "-o", output, *where), log=tmp_path / "run.log") as run:
            held: list[str] = []

            def find_holder() -> bool:
                held[:] = [name for name in live_workers(valkey_server) if valkey.hget(name, "in_flight") != b"0"]
                return bool(held)

            wait_until(find_holder, timeout_s=20, description="a worker has work")
            psutil.Process(int(valkey.hget(held[0], "pid") or 0)).kill()
            assert run.wait(60) == 0
        assert process.poll() is None, log.read_text()[-3000:]
        done_at = time.monotonic()
        check_whole(output, 40)
        children = descendants(process.pid)
        assert process.wait(30) == 0
        assert time.monotonic() - done_at > LIMIT_S - 2
        await_gone(children)
    assert "worker_restarted" in log.read_text()
    assert f"--exit-when-idle is {LIMIT_S} s: draining" in log.read_text()


def test_a_job_outlives_nodes_that_leave_while_it_comes(
    valkey: redis.Redis, valkey_server: Server, tmp_path: Path
) -> None:
    """Each job comes at about the moment in which the node leaves: it is taken, handed back, or never taken."""
    where = ("--redis-url", valkey_server.url, "--jobs", tmp_path / "jobs", "--model", "m")
    source = write_requests(tmp_path / "in.jsonl", 20)
    for number in range(2):
        with node(valkey_server, limit="1", log=tmp_path / "node.log") as process:
            wait_until(lambda: any(idle_s(valkey, valkey_server)), timeout_s=20, description="it is idle")
            enqueued = run_producer("enqueue", source, "-o", tmp_path / f"{number}.jsonl", *where)
            assert enqueued.returncode == 0, enqueued.stderr
            assert process.wait(40) == 0
    with started_worker(valkey_server, "--engine", "sim", "--model", "m", log=tmp_path / "worker.log"):
        collected = run_producer("collect", "--all", *where[:4])
        assert collected.returncode == 0, collected.stderr
    for number in range(2):
        check_whole(tmp_path / f"{number}.jsonl", 20)


def test_a_node_stays_while_one_of_its_workers_still_starts(
    valkey: redis.Redis, valkey_server: Server, tmp_path: Path
) -> None:
    """One of two is stopped before its engine is up; the other one alone would have left long ago."""
    log = tmp_path / "worker.log"
    command = worker_command("start", "--engine", "sim", "--workers", 2, "--exit-when-idle", 2)
    knobs = {"BAKEHOUSE_PRESENCE_S": "0.2", "BAKEHOUSE_REDIS_URL": valkey_server.url}
    with started(command, log=log, **knobs) as process:
        wait_until(lambda: len(descendants(process.pid)) == 2, timeout_s=60, description="both were started")
        slow = descendants(process.pid)[1]
        slow.suspend()
        wait_until(
            lambda: process.poll() is not None or max(idle_s(valkey, valkey_server), default=0) >= 6,
            timeout_s=60,
            description="the other one is idle",
        )
        assert process.poll() is None, log.read_text()[-3000:]
        slow.resume()
        assert process.wait(60) == 0, log.read_text()[-3000:]
    assert list(valkey.hvals(keys.DIED)) == [b"left", b"left"]
