"""Where Prometheus finds a metrics port, as workers and collectors tell it in Redis. Beside a line's way."""

import ipaddress
import socket
from contextlib import suppress

from common.broker import make_client
from common.sentinel import SCHEME, parse

LOOPBACK = "127.0.0.1"


def address_for(host: str, port: int, *, redis_url: str) -> str:
    """`address:port` of a port that listens on `host`; where that is every interface, the one towards Redis.

    Who reaches the same Redis, as the fleet's Prometheus does, reaches this host by that one too.
    """
    address = _towards(redis_url) if _is_every(host) else host
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _is_every(host: str) -> bool:
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_unspecified
    return host == ""


def _towards(redis_url: str) -> str:
    """This host's own address on the way to Redis; loopback where Redis is on this host, or cannot be found now."""
    server = dict(make_client(redis_url).connection_pool.connection_kwargs)
    if redis_url.startswith(SCHEME):
        server["host"], server["port"] = parse(redis_url).sentinels[0]
    if "host" not in server:
        return LOOPBACK
    with suppress(OSError):
        for family, kind, protocol, _, where in socket.getaddrinfo(
            server["host"], server.get("port"), type=socket.SOCK_DGRAM
        ):
            with socket.socket(family, kind, protocol) as way:
                way.connect(where)  # a datagram's: nothing is sent, the kernel only chooses the interface
                return str(way.getsockname()[0])
    return LOOPBACK
