"""What befalls Redis, its connections, its hints, and the clock that all live by, in the middle of a job."""

import time
from typing import Any, cast

from benchmarks.chaos.arena import JOB, Arena
from benchmarks.chaos.strike import NoEffectError, Strike, look_at
from common import keys
from tests.collecting import PRIORITY_STEPS, SEPARATOR
from tests.faults import redis_faults
from tests.faults.freezing import frozen
from tests.faults.stepped_clock import HOUR_S

CONNECTIONS = 4
"""The collector's and one a worker at least."""
SCRIPTS = ("claim", "publish", "renew", "release", "offer", "expire", "close", "look")


def restart(arena: Arena) -> Strike:
    """SIGKILL, and after up to 8 s the same server with its data."""
    before, at_s = redis_faults.run_id(arena.server), time.monotonic()
    arena.server.kill()
    arena.pause(0, 8)
    arena.server.start()
    if redis_faults.run_id(arena.server) == before:
        raise NoEffectError("the server is the same")
    return Strike(effect="another life of the server", at_s=at_s, away_s=time.monotonic() - at_s)


def restart_twice(arena: Arena) -> Strike:
    """SIGKILL and start, twice within 5 s."""
    at_s = time.monotonic()
    for _ in range(2):
        redis_faults.restart(arena.server)
        arena.pause(0.2, 2)
    away_s = time.monotonic() - at_s
    return Strike(effect=f"two more lives of the server in {away_s:.1f} s", at_s=at_s, away_s=away_s)


def cut_log(arena: Arena) -> Strike:
    """SIGKILL, and the end of its log is lost, as when the host's power goes away."""
    at_s = time.monotonic()
    cut = redis_faults.restart(arena.server, cut_bytes=arena.draw.randrange(500, 40_000))
    if not cut:
        raise NoEffectError("nothing was cut")
    return Strike(effect=f"{cut} bytes of its log are lost", at_s=at_s, away_s=time.monotonic() - at_s)


def flush(arena: Arena) -> Strike:
    """FLUSHALL."""
    at_s = time.monotonic()
    gone = redis_faults.flush(arena.server)
    if not gone:
        raise NoEffectError("there was nothing to flush")
    return Strike(effect=f"{gone} keys are gone", at_s=at_s)


def replace(arena: Arena) -> Strike:
    """SIGKILL, and an empty server at the same address."""
    at_s = time.monotonic()
    redis_faults.replace_by_empty(arena.server)
    return Strike(effect="an empty server", at_s=at_s, away_s=time.monotonic() - at_s)


def freeze(arena: Arena) -> Strike:
    """SIGSTOP for some seconds: connections stay, nobody is answered."""
    server = arena.server.process
    assert server is not None
    at_s = time.monotonic()
    with frozen(server.pid):
        away_s = arena.pause(2, 14)
        if arena.watcher.look() is not None:
            raise NoEffectError("it still answers")
    return Strike(effect="no answer", at_s=at_s, away_s=away_s)


def end_connections(arena: Arena) -> Strike:
    """CLIENT KILL of all connections, three times."""
    at_s = time.monotonic()
    ended = []
    for _ in range(3):
        ended.append(redis_faults.kill_connections(arena.server))
        arena.pause(0.1, 1)
    if min(ended) < CONNECTIONS:
        raise NoEffectError(f"only {min(ended)} connections were ended")
    return Strike(effect=f"{sum(ended)} connections were ended", at_s=at_s)


def drop_hints(arena: Arena) -> Strike:
    """Every hint in the queues is lost."""
    at_s, client = time.monotonic(), arena.client()
    dropped = 0
    for name in _queues(arena):
        with client.pipeline(transaction=True) as pipe:
            pipe.llen(name)
            pipe.delete(name)
            dropped += int(pipe.execute()[0])
    if not dropped:
        raise NoEffectError("no hint was waiting")
    return Strike(effect=f"{dropped} hints are lost", at_s=at_s)


def double_hints(arena: Arena) -> Strike:
    """Every hint in the queues comes twice more, the last time when its micro-batch is held or done."""
    at_s, client = time.monotonic(), arena.client()
    doubled = 0
    for name in _queues(arena):
        hints = cast(Any, client.lrange(name, 0, -1))
        if hints:
            client.rpush(name, *hints)
            client.lpush(name, *hints)
        doubled += len(hints)
    if not doubled:
        raise NoEffectError("no hint was waiting")
    return Strike(effect=f"{doubled} hints came three times", at_s=at_s)


def reset_connections(arena: Arena) -> Strike:
    """Every connection is reset by the network, three times."""
    assert arena.proxy is not None
    at_s = time.monotonic()
    ended = []
    for _ in range(3):
        ended.append(arena.proxy.reset_all())
        arena.pause(0.1, 1)
    if min(ended) < CONNECTIONS:
        raise NoEffectError(f"only {min(ended)} connections were reset")
    return Strike(effect=f"{sum(ended)} connections were reset", at_s=at_s)


def lose_replies(arena: Arena) -> Strike:
    """For a while every fifth command of those that count is done, and its reply is lost with its connection."""
    assert arena.proxy is not None
    at_s = time.monotonic()
    arena.proxy.swallow(0.2, of=SCRIPTS)
    arena.pause(3, 6)
    arena.proxy.swallow(0)
    lost = arena.proxy.swallowed.total()
    if not lost:
        raise NoEffectError("no reply was lost")
    return Strike(effect=f"{lost} replies were lost", at_s=at_s)


def fill(arena: Arena) -> Strike:
    """Another tenant fills its memory for some seconds: no new work can be offered, what is there goes on."""
    at_s, client = time.monotonic(), arena.client()
    redis_faults.fill(arena.server)
    try:
        arena.pause(1, 1)
        offered, results = client.hget(keys.info(JOB), "mb_high"), arena.watcher.results
        away_s = arena.pause(3, 8)
        if client.hget(keys.info(JOB), "mb_high") != offered or arena.watcher.results == results:
            raise NoEffectError("work was offered all the same, or none was done")
    finally:
        redis_faults.unfill(arena.server)
    return Strike(effect=f"nothing was offered for {away_s:.0f} s", at_s=at_s, away_s=time.monotonic() - at_s)


def step_clock(arena: Arena) -> Strike:
    """The wall clock of every process and of the server is set by an hour, back or forth."""
    assert arena.clock is not None
    at_s, before_s = time.monotonic(), arena.clock.offset_s()
    offset_s = round(before_s) + arena.draw.choice((-HOUR_S, HOUR_S))
    arena.clock.step(offset_s)
    if abs(arena.clock.offset_s() - before_s) < HOUR_S / 2:
        raise NoEffectError("the clock is the same")
    return Strike(effect=f"the clock is {offset_s:+d} s off", at_s=at_s)


def _queues(arena: Arena) -> list[str]:
    digests = look_at(arena).digests
    names = [keys.queue(model, digest) for model, digest in digests.items()] + [keys.queue(model) for model in digests]
    return [name + (f"{SEPARATOR}{step}" if step else "") for name in names for step in PRIORITY_STEPS]
