"""What Prometheus is to scrape: live workers and collectors that have a metrics port, as their heartbeats tell.

A node that joins stands here within seconds, and one that has left is gone 20 s later; nobody edits a list of targets.
"""

from collections.abc import Iterator
from typing import NamedTuple

import orjson
import redis

from common import keys
from producer.fleet import read_heartbeats

ROLES = {"worker": keys.WORKER_PREFIX, "collector": keys.COLLECTOR_PREFIX}
"""Label `role`, and whose heartbeats these are; one that names a role of its own (`targets`) has that."""


class ScrapeTarget(NamedTuple):
    """One metrics port."""

    address: str
    role: str
    host: str


def read_scrape_targets(client: redis.Redis) -> list[ScrapeTarget]:
    """Every metrics port of the fleet on this Redis, sorted. Raises `redis.RedisError`."""
    return sorted(target for role, prefix in ROLES.items() for target in _scrape_targets_of(client, role, prefix))


def as_json(targets: list[ScrapeTarget]) -> bytes:
    """`targets` as Prometheus' HTTP and file discovery read them: a JSON array, `[]` for none."""
    groups = [{"targets": [target.address], "labels": {"role": target.role, "host": target.host}} for target in targets]
    return orjson.dumps(groups)


def _scrape_targets_of(client: redis.Redis, role: str, prefix: str) -> Iterator[ScrapeTarget]:
    for fields in read_heartbeats(client, prefix).values():
        if address := fields.get(b"metrics"):
            own = fields.get(b"role", role.encode())
            texts = (text.decode(errors="replace") for text in (address, own, fields.get(b"host", b"")))
            yield ScrapeTarget(*texts)
