"""Redis behind Sentinel: `sentinel://user:password@host:26379,host:26379/NAME/0`, the primary that they call NAME.

User and password are the primary's. After a failover the next call goes to the new primary. What the old one had not
copied is lost with it, as when the end of a log is cut: the journal fills it in.
"""

from typing import Any, NamedTuple, cast
from urllib.parse import quote, unquote, urlsplit

import redis
from redis.sentinel import Sentinel

SCHEME = "sentinel:"
PORT = 26379


class Watched(NamedTuple):
    """What such a URL says."""

    sentinels: tuple[tuple[str, int], ...]
    name: str
    db: int
    username: str | None
    password: str | None


def parse(url: str) -> Watched:
    """The parts of `url`. Raises `ValueError` for what is no such URL."""
    parts = urlsplit(url)
    login, _, hosts = parts.netloc.rpartition("@")
    name, _, db = parts.path.strip("/").partition("/")
    if not hosts or not name:
        raise ValueError("name hosts and primary, as in sentinel://:password@host:26379,host:26379/NAME")
    username, _, password = login.partition(":")
    sentinels = []
    for place in hosts.split(","):
        host, _, port = place.partition(":")
        sentinels.append((host, int(port or PORT)))
    return Watched(tuple(sentinels), name, int(db or 0), unquote(username) or None, unquote(password) or None)


def make_sentinel_client(url: str, **options: Any) -> redis.Redis:
    """A client of the primary, whichever it is when a call is made; `options` as for any client."""
    watched = parse(url)
    asked: Any = Sentinel(list(watched.sentinels), sentinel_kwargs=options)  # type: ignore[no-untyped-call]
    login = {"username": watched.username, "password": watched.password}
    return cast(redis.Redis, asked.master_for(watched.name, db=watched.db, **login, **options))


def celery_sentinel_url(url: str) -> str:
    """`url` as kombu spells it: one for each Sentinel."""
    watched = parse(url)
    user, password = quote(watched.username or "", safe=""), quote(watched.password or "", safe="")
    login = f"{user}:{password}@" if watched.password else ""
    return ";".join(f"sentinel://{login}{host}:{port}/{watched.db}" for host, port in watched.sentinels)
