"""What holds a job up, by name: decided from what its collector sees at a look. Pure."""

from typing import Literal, NamedTuple

from producer.steering import JobState

Name = Literal["paused", "cancelling", "redis", "workers", "collector", "input", "window", "tail", "engines"]
FULL_SHARE = 0.8
"""Engines are full when so much of what their workers want in flight is there: the rest is on its way."""
LONG_STREAM = 64
"""Entries that wait for the collector right after it has taken in all it could at once."""


class Seen(NamedTuple):
    """One job and what is around it."""

    state: JobState = "open"
    live: int = 0
    """Live workers that serve its models."""
    ready: int = 0
    """Those of them that take work."""
    in_flight: int = 0
    """Requests in their engines, of all jobs."""
    target: int = 0
    """What they want in flight."""
    waiting: int = 0
    """Requests of the job fed and without a result."""
    unfed: int = 0
    has_room: bool = True
    """Whether more of it may be fed."""
    is_capped: bool = False
    """Whether `max_concurrency` is what leaves no room."""
    awaits_lines: bool = False
    """Whether all lines that were there have their results, and more may come."""
    stream: int = 0
    """Entries in its results stream."""
    redis_full: bool = False
    other_jobs: int = 0
    """Live jobs besides it."""


class Bottleneck(NamedTuple):
    """Its name, and what it means here."""

    name: Name
    text: str


def find_bottleneck(seen: Seen) -> Bottleneck:
    """The first of these that is true; the last one is how it should be."""
    if seen.state == "paused":
        return Bottleneck("paused", "the job is paused: producer resume lifts it")
    if seen.state == "cancelling":
        return Bottleneck("cancelling", "the job is being cancelled")
    if seen.redis_full:
        return Bottleneck("redis", "its memory is full: nothing more is fed; raise maxmemory")
    if not seen.ready:
        what = "all its workers start or drain" if seen.live else "no live worker serves this job: start one"
        return Bottleneck("workers", what)
    if seen.stream >= LONG_STREAM:
        return Bottleneck("collector", "results wait for it: a faster disk for the job directory")
    return _between_input_and_engines(seen)


def _between_input_and_engines(seen: Seen) -> Bottleneck:
    used = f"{seen.in_flight:,} in flight, {seen.target:,} wanted"
    if seen.awaits_lines:
        return Bottleneck("input", "every line that came has its result; more may come")
    if seen.in_flight >= FULL_SHARE * seen.target:
        shared = f", {seen.other_jobs} more jobs" if seen.other_jobs else ""
        return Bottleneck("engines", f"{used}{shared}; add workers")
    if not seen.unfed and seen.waiting < seen.target:
        return Bottleneck("tail", f"the last {seen.waiting:,} requests run: more workers do not help")
    if seen.unfed and seen.has_room and seen.waiting < seen.target:
        return Bottleneck("input", f"{used}: it is read too slowly")
    if seen.unfed and not seen.has_room:
        knob = "max_concurrency" if seen.is_capped else "the window"
        return Bottleneck("window", f"no more may be fed: raise {knob}")
    return Bottleneck("engines", f"{used}, more on its way")
