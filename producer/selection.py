"""Which results of a finished job are asked for again: pure policy of a rerun, as a condition on the journal's rows."""

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Self

import orjson

from common.errors import ErrorKind, RefusedError
from producer.outcome import REFUSED

_STATUS = re.compile(r"([1-5])xx|([1-5]\d\d)", re.IGNORECASE)
NEVER_RAN = "(attempts = 0 AND code IN ({}))".format(", ".join(f"'{kind.value}'" for kind in REFUSED))
"""Condition on a result: its line never became a request, so that no engine can do better."""


@dataclass(frozen=True)
class Selection:
    """Results with one of `codes`, one of `statuses` and an id of `ids`; what is None or empty leaves all.

    All of it empty: the results that are not 200.
    """

    codes: tuple[str, ...] = ()
    statuses: tuple[str, ...] = ()
    """`503`, or `5xx` for all from 500 to 599."""
    ids: str | None = None
    """A digest over the custom_ids asked for; which they are is for the journal to know."""

    @classmethod
    def make(cls, codes: Iterable[str], statuses: Iterable[str]) -> Self:
        """What was typed. Raises `RefusedError` for a code or a status that no result can have."""
        known = [kind.value for kind in ErrorKind]
        if unknown := [code for code in codes if code not in known]:
            raise RefusedError(f"no result has the code {unknown[0]!r}", do=f"choose among {', '.join(known)}")
        if wrong := [status for status in statuses if not _STATUS.fullmatch(status)]:
            raise RefusedError(f"{wrong[0]!r} is no status", do="give one like 503, or a class like 5xx")
        return cls(tuple(sorted(set(codes))), tuple(sorted({status.lower() for status in statuses})))

    def condition(self) -> tuple[str, tuple[str | int, ...]]:
        """The condition in SQL on a row of `result`, and its values; ids stand in the table `named`."""
        parts: list[str] = []
        values: list[str | int] = []
        if self.codes:
            parts.append(f"code IN ({', '.join('?' * len(self.codes))})")
            values += self.codes
        if self.statuses:
            parts.append(f"({' OR '.join(['status BETWEEN ? AND ?'] * len(self.statuses))})")
            values += [bound for status in self.statuses for bound in _range_of(status)]
        if self.ids is not None:
            parts.append("seq IN (SELECT seq FROM named)")
        return " AND ".join(parts) or "status != 200", tuple(values)

    def to_json(self) -> bytes:
        """As it stands in the journal."""
        return orjson.dumps(asdict(self))


def _range_of(status: str) -> tuple[int, int]:
    return int(status.replace("x", "0")), int(status.replace("x", "9"))
