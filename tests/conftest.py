"""Fixtures every tier shares: real servers, clean clients, and a look at what was left in Redis."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
import redis

from common import keys
from tests.faults.small_disk import NoSmallDiskError, SmallDisk, mounted
from tests.servers import REDIS, VALKEY, Server

hypothesis.settings.register_profile("any machine", deadline=None)
hypothesis.settings.load_profile("any machine")  # a busy machine stands still for half a second now and then

NAMED_WITHOUT_LIFETIME = ("_kombu.binding", keys.QUEUE_PREFIX, keys.JOBS, keys.DIED)
"""Keys that may stay without a lifetime: Celery's own, queues, and the two named tables."""


@pytest.fixture(autouse=True, scope="session")
def _no_ambient_settings(tmp_path_factory: pytest.TempPathFactory) -> None:
    """No knob of the user's, and a cache folder of our own: in it stands what a supervisor finds of others' dead."""
    for name in [name for name in os.environ if name.startswith("BAKEHOUSE_")]:
        del os.environ[name]
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session", params=[VALKEY, REDIS])
def any_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Each of the servers we stand on, in turn."""
    server = _server_of(request.param, tmp_path_factory.mktemp(request.param))
    yield server
    server.stop()


@pytest.fixture(params=[VALKEY, REDIS])
def any_own_server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    """Each of them in turn, to be broken by one test alone."""
    server = _server_of(request.param, tmp_path / "data")
    yield server
    server.stop()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Server]:
    """The embedded default, to be broken by one test alone."""
    server = _server_of(VALKEY, tmp_path / "data")
    yield server
    server.stop()


@pytest.fixture(scope="session")
def valkey_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The embedded default, shared by a whole session; each test flushes it."""
    server = Server(VALKEY, tmp_path_factory.mktemp("valkey")).start()
    yield server
    server.stop()


@pytest.fixture
def any_redis(any_server: Server) -> Iterator[redis.Redis]:
    """A client of each server, emptied; afterwards every key left must have a lifetime or a name."""
    yield from _emptied(any_server)


@pytest.fixture
def valkey(valkey_server: Server) -> Iterator[redis.Redis]:
    """A client of the embedded default, emptied; afterwards every key left must have a lifetime or a name."""
    yield from _emptied(valkey_server)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """An empty small disk of the test's own."""
    try:
        with mounted(tmp_path / "disk") as disk:
            yield disk
    except NoSmallDiskError:
        pytest.skip("no small disk can be mounted here: root is needed, and a loop device or tmpfs")


def _server_of(kind: str, directory: Path) -> Server:
    if kind == REDIS and not shutil.which("redis-server"):
        pytest.skip("redis-server is not installed (Debian: apt-get install redis-server)")
    return Server(kind, directory).start()


def _emptied(server: Server) -> Iterator[redis.Redis]:
    client = server.client()
    client.flushall(asynchronous=False)
    yield client
    leaked = [
        key
        for key in (name.decode() for name in client.scan_iter(count=1000))
        if client.ttl(key) == -1 and not key.startswith(NAMED_WITHOUT_LIFETIME)
    ]
    assert not leaked, f"left in Redis without a lifetime: {leaked[:5]}"
