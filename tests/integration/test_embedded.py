"""The embedded Valkey: private, persistent, and gone with its parent however that ends."""

import stat
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from common.broker import make_client
from common.errors import StoppedError
from producer.embedded import EmbeddedServer
from tests.processes import environment
from tests.waiting import wait_until

STARTER = """
import sys
from pathlib import Path
from producer.embedded import EmbeddedServer
server = EmbeddedServer(Path(sys.argv[1]) / "redis", log_path=Path(sys.argv[1]) / "redis.log")
server.start()
print(server.pid, server.url, file=sys.stderr, flush=True)
sys.stdin.read()
"""


def make_server(folder: Path) -> EmbeddedServer:
    return EmbeddedServer(folder / "redis", log_path=folder / "redis.log")


def test_only_its_owner_reaches_it_and_nothing_is_evicted(tmp_path: Path) -> None:
    with make_server(tmp_path) as server:
        socket = Path(server.url.removeprefix("unix://"))
        assert stat.S_IMODE(socket.parent.stat().st_mode) == 0o700
        assert len(str(socket)) <= 100
        client = make_client(server.url)
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
        assert client.config_get("port") == {"port": "0"}
        assert server.version.startswith("Valkey 9.")
    assert not socket.parent.exists()


def test_what_it_held_is_there_after_kill_and_start(tmp_path: Path) -> None:
    server = make_server(tmp_path)
    with server:
        client = make_client(server.url)
        client.set("kept", "yes")
        client.config_set("appendfsync", "always")
        client.set("kept", "still")
        assert server.pid is not None
        psutil.Process(server.pid).kill()
        wait_until(server.ended, timeout_s=5, description="it ended")
        assert server.ended() == "the embedded Valkey was ended by SIGKILL"
    url = server.url
    with make_server(tmp_path) as again:
        assert make_client(again.url).get("kept") == b"still"
        assert again.url == url, "by the same address the next supervisor knows the workers left behind"


def test_a_file_it_cannot_read_is_put_away(tmp_path: Path) -> None:
    server = make_server(tmp_path)
    with server:
        make_client(server.url).set("lost", "yes")
    for file in (tmp_path / "redis" / "appendonlydir").glob("*.incr.aof"):
        file.write_bytes(b"*3\r\nnonsense")
    with make_server(tmp_path) as again:
        assert make_client(again.url).get("lost") is None


def test_it_says_why_it_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EmbeddedServer, "_command", lambda _self: ["/bin/sh", "-c", "echo no room; exit 7"])
    with pytest.raises(StoppedError, match=r"ended with code 7.*no room"):
        make_server(tmp_path).start()


def test_it_dies_with_its_parent_and_the_next_one_clears_up(tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-P", "-c", STARTER, tmp_path],
        env=environment(), stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert parent.stderr is not None
    pid, url = parent.stderr.readline().split()
    parent.kill()
    parent.communicate()
    wait_until(lambda: not psutil.pid_exists(int(pid)), timeout_s=2, description="the server died with its parent")
    socket = Path(url.removeprefix("unix://"))
    assert socket.parent.exists()
    with make_server(tmp_path) as again:
        assert again.url == url
    assert not socket.parent.exists()
