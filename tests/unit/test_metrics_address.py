"""Where a metrics port is told to be: as it listens, or by the address that reaches Redis."""

import socket

import pytest

from common.metrics_address import address_for


@pytest.mark.parametrize(
    ("host", "redis_url", "address"),
    [
        ("127.0.0.1", "redis://10.1.2.3:6379/0", "127.0.0.1:9471"),
        ("gpu-7.example", "redis://10.1.2.3:6379/0", "gpu-7.example:9471"),
        ("fd00::7", "redis://10.1.2.3:6379/0", "[fd00::7]:9471"),
        ("0.0.0.0", "redis://127.0.0.1:6379/0", "127.0.0.1:9471"),
        ("0.0.0.0", "unix:///run/redis.sock", "127.0.0.1:9471"),
        ("::", "unix:///run/redis.sock", "127.0.0.1:9471"),
        ("", "redis://no-such-host.invalid:6379/0", "127.0.0.1:9471"),
    ],
)
def test_what_is_told(host: str, redis_url: str, address: str) -> None:
    assert address_for(host, 9471, redis_url=redis_url) == address


def test_every_interface_is_told_as_the_one_towards_redis() -> None:
    """192.0.2.1 is nobody's, so it is reached, if at all, by the interface of the default route."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
        try:
            way.connect(("192.0.2.1", 6379))
        except OSError:
            pytest.skip("this machine has no route to elsewhere")
        own = way.getsockname()[0]
    assert address_for("0.0.0.0", 9471, redis_url="redis://192.0.2.1:6379/0") == f"{own}:9471"
