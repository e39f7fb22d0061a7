"""What befalls a Redis server in tests, each with proof of its effect: restarts, cut logs, lost data, full memory."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import redis

from common import keys
from tests.servers import Server

LITTLE_BYTES = 256 * 1024
"""Less than what a server without data uses."""


def run_id(server: Server) -> str:
    """Which life of the server this is."""
    return str(server.client().info("server")["run_id"])


def restart(server: Server, *, cut_bytes: int = 0) -> int:
    """Kill it and start it again with its data, but for the last `cut_bytes` of its log; returns what was cut."""
    before = run_id(server)
    server.kill()
    cut = cut_tail(server.directory, cut_bytes)
    server.start()
    assert run_id(server) != before, "the server was not restarted"
    return cut


def cut_tail(directory: Path, cut_bytes: int) -> int:
    """Take the last bytes off the append-only file of a dead server; returns how many there were to take."""
    (log,) = directory.glob("appendonlydir/*.incr.aof")
    size = log.stat().st_size
    os.truncate(log, max(0, size - cut_bytes))
    return size - log.stat().st_size


def replace_by_empty(server: Server) -> None:
    """Kill it, and let one without any data listen at the same address."""
    before = run_id(server)
    server.kill()
    shutil.rmtree(server.directory)
    server.start()
    assert run_id(server) != before
    assert server.client().dbsize() == 0, "it has data"


def flush(server: Server) -> int:
    """Take all its data; returns how many keys there were."""
    client = server.client()
    gone = int(cast(Any, client.dbsize()))
    client.flushall(asynchronous=False)
    return gone


def kill_connections(server: Server) -> int:
    """End every client's connection; returns how many there were."""
    return int(cast(Any, server.client().client_kill_filter(_type="normal", skipme=True)))


def copy_hints(server: Server, *, copies: int, job: str = "") -> int:
    """Have each hint that waits (of `job` alone, if named) so many times, 0: none; returns how many there were."""
    client = server.client()
    hints = list(_hints(server, job))
    for name, hint in hints:
        client.lrem(name, 1, hint)
        for _ in range(copies):
            client.rpush(name, hint)
    return len(hints)


def count_hints(server: Server, job: str) -> int:
    """How many hints of `job` wait."""
    return len(list(_hints(server, job)))


def _hints(server: Server, job: str) -> Iterator[tuple[str, str]]:
    """Queue and message of each hint that waits; those that a worker takes meanwhile may be among them."""
    client = server.client()
    for name in client.scan_iter(match=keys.QUEUE_PREFIX + "*"):
        for hint in cast(Any, client.lrange(name, 0, -1)):
            if f"job={job}".encode() in hint:
                yield cast(Any, name), hint


def fill(server: Server) -> None:
    """Let it be over its limit, as by another tenant's data: from now on it refuses whatever needs memory."""
    client = server.client()
    client.config_set("maxmemory", LITTLE_BYTES)
    assert client.info("memory")["used_memory"] > LITTLE_BYTES
    try:
        client.rpush("ballast", "x")
    except redis.OutOfMemoryError:
        return
    raise AssertionError("it still takes data")


def unfill(server: Server) -> None:
    """There is room again."""
    server.client().config_set("maxmemory", 0)
