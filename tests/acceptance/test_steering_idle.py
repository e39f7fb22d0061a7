"""`worker start --exit-when-idle`: a node with nothing to do drains and ends with 0, and never with work in hand."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest
import redis

from common import keys
from tests.jobs import check_whole, wait_for_results, write_requests
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
ROWS = 40


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
    """A job that waits for its lines gets them at the last moment; then a worker is killed with work in hand."""
    log, output, fifo = tmp_path / "worker.log", tmp_path / "out.jsonl", tmp_path / "fifo"
    lines = write_requests(tmp_path / "in.jsonl", ROWS).read_text()
    where = ("--redis-url", valkey_server.url, "--jobs", tmp_path / "jobs", "--batch-size", 4, "--linger", 0.1)
    slow = ("--workers", 2, "--sim-places", 2, "--sim-seconds", 0.06)
    os.mkfifo(fifo)
    with (
        started(producer_command("run", fifo, "-o", output, *where), log=tmp_path / "run.log") as run,
        ExitStack() as end,
    ):
        pipe = end.enter_context(fifo.open("w"))
        process = end.enter_context(node(valkey_server, *slow, limit=f"{LIMIT_S}s", log=log))
        wait_until(
            lambda: len(idle := idle_s(valkey, valkey_server)) == 2 and min(idle) >= LIMIT_S - 2,
            timeout_s=30,
            description="the node is about to leave",
        )
        pipe.write(lines)
        pipe.close()
        psutil.Process(await_holder(valkey, valkey_server)).kill()
        wait_for_results(output, run, at_least=ROWS, log=tmp_path / "run.log")
        assert process.poll() is None, log.read_text()[-3000:]
        children = descendants(process.pid)
        assert process.wait(60) == 0
        await_gone(children)
        assert run.wait(30) == 0
    check_whole(output, ROWS)
    said = log.read_text()
    assert 0 < said.index("worker_restarted") < said.index(f"--exit-when-idle is {LIMIT_S} s: draining")


def await_holder(client: redis.Redis, server: Server) -> int:
    """The pid of a worker that has requests in flight, once there is one."""
    found: list[int] = []

    def look() -> bool:
        for name in live_workers(server):
            pid, in_flight = client.hmget(name, "pid", "in_flight")
            found.extend([int(pid or 0)] if int(in_flight or 0) else [])
        return bool(found)

    wait_until(look, timeout_s=30, description="a worker has work")
    return found[0]


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
    with started(command, log=log, XDG_CACHE_HOME=str(tmp_path / "cache"), **knobs) as process:
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
