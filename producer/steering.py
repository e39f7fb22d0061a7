"""Steering: what a job becomes when somebody wishes it paused, resumed or cancelled, or when too much of it fails.

Pure: state, wish and counts in, state out. `helm` hears wishes and carries them out, `asking` leaves them. A wish is
known by its nonce: it is obeyed once, wherever and however often it is found.
"""

import re
import secrets
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Literal, NamedTuple, Self

import orjson

from common.errors import ErrorKind
from producer.counts import Counts

Verb = Literal["cancel", "pause", "resume"]
JobState = Literal["open", "paused", "cancelling", "done"]
"""What the journal says of a job."""

IN_REDIS: dict[JobState, tuple[str, ...]] = {
    "open": ("open",),
    "paused": ("paused",),
    "cancelling": ("cancelling", "sealed"),
    "done": ("done",),
}
"""What `info.state` may be for a state of the journal; the first is what it is set to."""
LEAST_ROWS = 50
"""Of fewer finished rows no share is taken: a few bad ones say little."""
HEARD = 32
"""Nonces remembered; those that still stand somewhere are never forgotten."""
_WISH = re.compile(r"(cancel|pause|resume):([0-9a-f]{16})(?::([A-Za-z0-9_.@-]{1,160}))?")


class Wish(NamedTuple):
    """What somebody wants of a job."""

    verb: Verb
    nonce: str
    """16 hex digits."""
    by: str = ""
    """Who left it, `user@host`; for the log alone."""

    @classmethod
    def make(cls, verb: Verb, *, by: str = "") -> Self:
        """A new wish."""
        return cls(verb, secrets.token_hex(8), by)

    @classmethod
    def parse(cls, text: str | None) -> Self | None:
        """The wish that `str` wrote as `text`; None for anything else."""
        found = _WISH.fullmatch(text or "")
        return cls(found[1], found[2], found[3] or "") if found else None  # type: ignore[arg-type]

    def __str__(self) -> str:
        return f"{self.verb}:{self.nonce}" + (f":{self.by}" if self.by else "")


@dataclass(frozen=True)
class Steering:
    """How a job has been steered so far; kept in the journal beside its state."""

    heard: tuple[str, ...] = ()
    """Nonces of wishes that were obeyed, the newest last."""
    reason: str = ""
    """Why it is paused."""
    base_done: int = 0
    """Results there were when failures began to be counted: at the start, or at the last resume."""
    base_failures: dict[str, int] = field(default_factory=dict)
    """Those of them that were 5xx, by kind."""
    cancelled: bool = False
    """Whether it was ended by a cancel."""

    def counted_from(self, counts: Counts) -> Self:
        """The same, with failures counted from now on."""
        return replace(self, base_done=counts.done, base_failures=_failures_of(counts))

    def to_json(self) -> bytes:
        """As it stands in the journal."""
        return orjson.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: bytes | str) -> Self:
        """What `to_json` wrote, or `{}`."""
        fields = orjson.loads(text)
        return cls(**{**fields, "heard": tuple(fields.get("heard", ()))})


class Course(NamedTuple):
    """A job's state and how it came to it."""

    state: JobState
    steering: Steering


def obey(course: Course, wishes: Iterable[Wish], *, counts: Counts, why: str) -> Course:
    """What `course` becomes by those of `wishes` that were not heard before, in their order.

    `why`: the reason of a pause. A cancel is final, and a job that is done does nothing any more.
    """
    standing = list(wishes)
    heard = course.steering.heard
    for wish in standing:
        if wish.nonce not in heard:
            heard = (*heard, wish.nonce)
            course = _obey_one(course, wish.verb, counts=counts, why=why)
    held = {wish.nonce for wish in standing}
    ordered = sorted(heard, key=lambda nonce: nonce in held)  # stable: those that stand somewhere go last
    kept = tuple(ordered[-max(HEARD, len(held)) :]) if heard != course.steering.heard else heard
    return course._replace(steering=replace(course.steering, heard=kept))


def pause(course: Course, *, reason: str) -> Course:
    """`course`, paused for `reason`, if it is open."""
    if course.state != "open":
        return course
    return Course("paused", replace(course.steering, reason=reason))


def end(course: Course) -> Course:
    """`course` when each request has its result."""
    return Course("done", replace(course.steering, cancelled=course.state == "cancelling"))


def find_failing(steering: Steering, counts: Counts, *, above: float) -> str | None:
    """Why the job should pause: more than the share `above` of at least 50 results are 5xx. None: it should not."""
    failures = Counter(_failures_of(counts)) - Counter(steering.base_failures)
    done, failed = counts.done - steering.base_done, failures.total()
    if done < LEAST_ROWS or failed <= above * done:
        return None
    kinds = ", ".join(f"{kind} {number:,}" for kind, number in failures.most_common())
    return f"{failed:,} of {done:,} results{' since the last resume' * bool(steering.base_done)} are 5xx ({kinds})"


def _obey_one(course: Course, verb: Verb, *, counts: Counts, why: str) -> Course:
    state, steering = course
    if verb == "cancel" and state in ("open", "paused"):
        return Course("cancelling", replace(steering, reason=""))
    if verb == "pause":
        return pause(course, reason=why)
    if verb == "resume" and state == "paused":
        return Course("open", replace(steering, reason="").counted_from(counts))
    return course


def _failures_of(counts: Counts) -> dict[str, int]:
    """5xx results by kind. What the input or the user is to blame for (4xx, cancelled) is no failing deploy."""
    return {kind: number for kind, number in counts.failures.items() if ErrorKind(kind).status >= 500}
