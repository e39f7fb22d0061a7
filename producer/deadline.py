"""A job's deadline: the moment by which all of its results are to be there, and how it stands by it.

Pure: moments and forecasts in, a standing out. Beside a line's way: a deadline hurries a job, it never drops a result.
"""

import math
import re
from datetime import UTC, datetime, time, timedelta, tzinfo
from typing import NamedTuple, Self

import orjson

from common.errors import RefusedError
from producer.eta import Forecast

URGENT_SHARE = 0.1
"""A job is hurried while less than this share of the time left is margin; no hurry is needed above `CALM_SHARE`."""
CALM_SHARE = 0.25
UNTOLD_SHARE = 1 / 3
"""An end that cannot be told for this share of the time there was (nobody works, nothing comes) is taken for a miss."""
SLACK = 0.95
"""Workers that are advised are to be done in this share of the time left: the last requests leave places idle."""
_CLOCK = re.compile(r"\d{1,2}:\d{2}(:\d{2})?")
_DO = "as in 07:00 (local time, the next one), 2026-12-01T07:00 or 2026-12-01T07:00+01:00"


class Deadline(NamedTuple):
    """As it was given, and the moment it means (aware, UTC)."""

    given: str
    at: datetime

    def left_s(self, now: datetime) -> float:
        """Seconds from `now`; below 0 once it is past."""
        return (self.at - now).total_seconds()

    def to_json(self) -> bytes:
        """As it stands in the job directory."""
        return orjson.dumps({"given": self.given, "at": self.at})

    @classmethod
    def from_json(cls, text: bytes) -> Self:
        """What `to_json` wrote. Raises `ValueError`, `KeyError`."""
        fields = orjson.loads(text)
        return cls(fields["given"], datetime.fromisoformat(fields["at"]))


class Standing(NamedTuple):
    """How a job stands by its deadline."""

    margin_s: float | None = None
    """Seconds between its expected end and the deadline; below 0: it comes late. None: not known yet."""
    is_urgent: bool = False
    """Whether its hints go first."""
    workers_needed: int | None = None
    """Live workers that would make it, where those that are there will not; None: none needed, none known."""
    is_at_risk: bool = False
    """Whether the deadline will be missed, as things are."""


NOWHERE = Standing()


def choose_deadline(
    text: str | None, *, kept: Deadline | None, now: datetime, zone: tzinfo | None = None
) -> Deadline | None:
    """The deadline of a command: none given, or the same words again, keep the one there is.

    Raises `RefusedError`: no moment, or one that is past.
    """
    if text is None or (kept is not None and kept.given == text):
        return kept
    at = parse_moment(text, now=now, zone=zone)
    if at <= now:
        raise RefusedError("the deadline is past", where=f"{text} is {at.isoformat()}", do="give a later one")
    return Deadline(text, at)


def parse_moment(text: str, *, now: datetime, zone: tzinfo | None = None) -> datetime:
    """The moment `text` means at `now` (aware), in UTC: the next such time of day, or an ISO 8601 date and time.

    Without an offset it is local: of `zone`, else of this machine. Raises `RefusedError`.
    """
    try:
        if _CLOCK.fullmatch(text):
            return _next(time.fromisoformat(text.zfill(5) if text.count(":") == 1 else text.zfill(8)), now, zone)
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise RefusedError(f"deadline: no such moment: {text[:80]!r}", do=_DO) from error
    if len(text) <= len("2026-12-01"):
        raise RefusedError(f"deadline: {text!r} has no time of day", do=_DO)
    return _in_utc(moment, zone)


class Crew(NamedTuple):
    """Who works on a job."""

    workers: int
    """Ready ones."""
    in_flight: int = 0
    """Requests in their engines: no other worker makes them faster."""
    start_s: float = 0.0
    """What another worker takes to start."""


def judge(
    forecast: Forecast, crew: Crew, *, left_s: float, before: Standing = NOWHERE, untold_s: float = 0.0
) -> Standing:
    """How a job that `crew` works on stands by a deadline in `left_s`.

    `before`: as it stood at the last look. `untold_s`: for so long no end could be told.
    """
    if left_s <= 0:
        return Standing(left_s - (forecast.left_s or 0.0), is_urgent=True, is_at_risk=True)
    if forecast.left is None:
        return NOWHERE
    if forecast.left_s is None:
        is_at_risk = before.is_at_risk or untold_s >= UNTOLD_SHARE * (untold_s + left_s)
        needed = workers_needed(forecast, crew, left_s=left_s) if is_at_risk and not crew.workers else None
        return Standing(None, before.is_urgent or is_at_risk, needed, is_at_risk)
    margin_s = left_s - forecast.left_s
    is_urgent = margin_s < (CALM_SHARE if before.is_urgent else URGENT_SHARE) * left_s
    if margin_s >= 0:
        return Standing(margin_s, is_urgent)
    return Standing(margin_s, is_urgent, workers_needed(forecast, crew, left_s=left_s), is_at_risk=True)


def workers_needed(forecast: Forecast, crew: Crew, *, left_s: float) -> int | None:
    """How many live workers end all that is left within `left_s`; None: no number does."""
    each_per_s = forecast.per_worker_per_s
    time_s = SLACK * left_s - forecast.tail_s
    new_s = time_s - crew.start_s
    if forecast.left is None or not each_per_s or new_s <= 0 or forecast.left <= crew.in_flight:
        return None
    rest = forecast.left - each_per_s * crew.workers * time_s
    return crew.workers + max(1, math.ceil(rest / (each_per_s * new_s)))


def _next(clock: time, now: datetime, zone: tzinfo | None) -> datetime:
    today = now.astimezone(zone).date()
    moments = [_in_utc(datetime.combine(today + timedelta(days=days), clock), zone) for days in (0, 1)]
    return next((moment for moment in moments if moment > now), moments[-1])


def _in_utc(moment: datetime, zone: tzinfo | None) -> datetime:
    if moment.tzinfo is None and zone is not None:
        moment = moment.replace(tzinfo=zone)
    return moment.astimezone(UTC)  # one without an offset is taken as this machine's
