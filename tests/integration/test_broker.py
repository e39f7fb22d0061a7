"""The doors to Redis: servers on which work could be lost are refused, each with its reason."""

from pathlib import Path

import pytest
import redis

from common.broker import TASK_NAME, check_server, make_app, make_client, make_queue
from common.errors import RefusedError, StoppedError
from common.settings import load
from tests.servers import VALKEY, Server


def test_servers_we_stand_on_are_accepted(any_redis: redis.Redis) -> None:
    version = check_server(any_redis, url="unix:///x")
    assert version.startswith(("valkey 9.", "redis 7."))


def test_evicting_policy_is_refused(any_redis: redis.Redis) -> None:
    any_redis.config_set("maxmemory-policy", "allkeys-lru")
    try:
        with pytest.raises(RefusedError, match="noeviction"):
            check_server(any_redis, url="redis://u:pw@h/0")
    finally:
        any_redis.config_set("maxmemory-policy", "noeviction")


def test_absent_server_is_said(tmp_path: Path) -> None:
    url = f"unix://{tmp_path}/absent.sock"
    with pytest.raises(StoppedError, match="cannot be reached"):
        check_server(make_client(url), url=url)


def test_wrong_password_is_refused(tmp_path: Path) -> None:
    server = Server(VALKEY, tmp_path)
    server.start()
    try:
        server.client().config_set("requirepass", "right")
        with pytest.raises(RefusedError, match="user and password"):
            check_server(server.client(), url=server.url)
    finally:
        server.stop()


def test_hint_is_one_small_readable_message(any_redis: redis.Redis) -> None:
    url = f"unix://{any_redis.connection_pool.connection_kwargs['path']}"
    app = make_app(load(redis_url=url))
    queue = make_queue("bakehouse.q.org/model")
    app.send_task(TASK_NAME, args=[1, "job", 17, 32], queue=queue, priority=3, argsrepr="job=job mb=17 n=32")
    (message,) = any_redis.lrange("bakehouse.q.org/model\x06\x163", 0, -1)
    assert b'"argsrepr": "job=job mb=17 n=32"' in message
    assert len(message) < 1_500
