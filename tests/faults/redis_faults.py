"""What befalls a Redis server in tests, each with proof of its effect: restarts, cut logs, lost data, full memory."""

import os
import shutil
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import redis

from tests.servers import Server

BALLAST = "ballast"


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


def fill(server: Server, *, maxmemory_bytes: int) -> None:
    """Give it a limit and fill it beyond, as another tenant would; from now on it refuses whatever needs memory."""
    client = server.client()
    client.config_set("maxmemory", maxmemory_bytes)
    before = int(cast(Any, client.llen(BALLAST)))
    with suppress(redis.OutOfMemoryError):
        while True:
            client.rpush(BALLAST, b"x" * 65536)
    assert int(cast(Any, client.llen(BALLAST))) > before, "it was full before"


def unfill(server: Server) -> None:
    """The other tenant goes."""
    server.client().unlink(BALLAST)


def freeze(server: Server) -> None:
    """Stop the server without a word: it keeps its connections and answers nobody."""
    assert server.process is not None
    server.process.send_signal(signal.SIGSTOP)
