"""What befalls Redis under a job at work: no result is lost or doubled, and work flows again within 30 s."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults import redis_faults
from tests.faults.proxy import Proxy
from tests.faults.scene import at_work
from tests.servers import REDIS, VALKEY, Server


@pytest.fixture(params=[VALKEY, REDIS])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    """Each kind of server, to be broken by one test alone."""
    if request.param == REDIS and not shutil.which("redis-server"):
        pytest.skip("redis-server is not installed (Debian: apt-get install redis-server)")
    server = Server(request.param, tmp_path / "data").start()
    yield server
    server.stop()


@pytest.fixture
def valkey_alone(tmp_path: Path) -> Iterator[Server]:
    """The embedded default, to be broken by one test alone."""
    server = Server(VALKEY, tmp_path / "data").start()
    yield server
    server.stop()


def test_restarts_with_its_data(server: Server, tmp_path: Path) -> None:
    with at_work(server, tmp_path) as scene:
        redis_faults.restart(server)
        scene.check_flow()
        redis_faults.restart(server)
        redis_faults.restart(server)
        scene.check_flow()
        scene.check_whole()


@pytest.mark.parametrize("cut_bytes", [300, 3_000, 30_000])
def test_comes_back_without_the_end_of_its_log(valkey_alone: Server, tmp_path: Path, cut_bytes: int) -> None:
    with at_work(valkey_alone, tmp_path) as scene:
        assert redis_faults.restart(valkey_alone, cut_bytes=cut_bytes) == cut_bytes
        scene.check_flow()
        scene.check_whole()


def test_is_flushed(server: Server, tmp_path: Path) -> None:
    with at_work(server, tmp_path) as scene:
        assert redis_faults.flush(server) > 4
        scene.check_flow()
        scene.check_whole()


def test_is_replaced_by_an_empty_one(valkey_alone: Server, tmp_path: Path) -> None:
    with at_work(valkey_alone, tmp_path) as scene:
        redis_faults.replace_by_empty(valkey_alone)
        scene.check_flow()
        scene.check_whole()


def test_connections_are_killed(server: Server, tmp_path: Path) -> None:
    with at_work(server, tmp_path) as scene:
        for reach in (24, 48, 72):
            scene.reach(reach)
            assert redis_faults.kill_connections(server) >= 3
        scene.check_flow()
        scene.check_whole()


def test_connections_are_reset(valkey_alone: Server, tmp_path: Path) -> None:
    with Proxy(valkey_alone.socket, tcp=True) as proxy, at_work(valkey_alone, tmp_path, url=proxy.url) as scene:
        for reach in (24, 48, 72):
            scene.reach(reach)
            assert proxy.reset_all() >= 3
        scene.check_flow()
        scene.check_whole()


LOST = [
    (("claim", "release"), 0.4),
    (("publish", "xdel"), 0.3),
    (("offer", "close"), 0.08),
    (("own", "hset"), 0.3),
    (("renew", "look"), 0.4),
    ((), 0.01),
]


@pytest.mark.parametrize(("commands", "share"), LOST, ids=[row[0][0] if row[0] else "any" for row in LOST])
def test_replies_are_lost(valkey_alone: Server, tmp_path: Path, commands: tuple[str, ...], share: float) -> None:
    with Proxy(valkey_alone.socket) as proxy:
        proxy.swallow(share, of=commands)
        with at_work(valkey_alone, tmp_path, url=proxy.url, reach=1) as scene:
            scene.check_whole()
        print(proxy.swallowed, proxy.commands)
        assert proxy.swallowed.total() >= 2, proxy.swallowed
