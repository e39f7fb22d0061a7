"""Notes: small facts about workers and jobs, beside a line's way, which also a full server takes.

A worker whose heartbeat were refused would not be live, and a death that cannot be certified would not be mended: just
when room is wanted, nobody would do the work that makes it.
"""

from collections.abc import Mapping

import redis

from common import script_calls


def note(client: redis.Redis, key: str, fields: Mapping[str, object], *, lifetime_s: int = 0) -> None:
    """Set `fields` of the hash `key`, and how long it stays (0: as long as it would); repeating it is safe.

    Raises `redis.RedisError`.
    """
    pairs = [str(part) for pair in fields.items() for part in pair]
    script_calls.run(client, "note", keys=[key], args=[lifetime_s, *pairs])
