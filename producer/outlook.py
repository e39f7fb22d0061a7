"""What a collector expects of its job, and what holds it up, as it says it in Redis for `status` on any host."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

import orjson

FIELD = "outlook"
"""In `info`."""


@dataclass(frozen=True)
class Outlook:
    """One job, as of a look of its collector."""

    at: str
    """When, UTC, ISO 8601."""
    results_per_s: float
    tokens_per_s: float
    left: int
    """Requests without a result; those not read yet are estimated."""
    unfed: int
    """Those of them not fed yet."""
    left_s: float | None
    """Seconds to the end; None while it cannot be known."""
    bottleneck: str
    why: str
    waits_for: str | None
    deadline: str | None
    """UTC, ISO 8601."""
    margin_s: float | None
    workers_needed: int | None
    is_urgent: bool
    is_at_risk: bool
    redis_share: float | None
    """Of the server's maxmemory that is used; None: it has none."""
    events: tuple[str, ...]
    """The last ones, oldest first."""

    def to_json(self) -> str:
        """As it stands in Redis."""
        return orjson.dumps(asdict(self)).decode()

    @classmethod
    def of(cls, info: Mapping[str, str]) -> Self | None:
        """What the job's collector last said; None where it has said nothing that can be read."""
        try:
            fields: dict[str, Any] = orjson.loads(info[FIELD])
            return cls(**{**fields, "events": tuple(fields["events"])})
        except (KeyError, ValueError, TypeError):
            return None
