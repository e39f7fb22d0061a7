"""What befalls the process that owns the job, `run`, `collect` or `enqueue`; afterwards its command is given again."""

import signal
import time

import redis

from benchmarks.chaos.arena import Arena
from benchmarks.chaos.strike import NoEffectError, Strike, await_entries, holders, holds_of
from common.errors import ExitCode
from producer.journal_reader import read_checkpoint
from producer.local_worker import count_ready
from tests.faults.freezing import frozen
from tests.processes import await_gone
from tests.waiting import wait_until

END_S = 60.0


def kill_collector(arena: Arena) -> Strike:
    """SIGKILL; its results wait in the stream until the same command takes the job up again."""
    at_s = time.monotonic()
    arena.collector.process.kill()
    arena.collector.process.wait()
    try:
        entries = await_entries(arena)
        arena.pause(0, 3)
    finally:
        arena.collector.start()
    return Strike(effect=f"{entries} entries waited for nobody", at_s=at_s, away_s=time.monotonic() - at_s)


def interrupt_collector(arena: Arena) -> Strike:
    """One SIGINT, as by Ctrl-C: it ends with 130, and the same command goes on."""
    at_s = time.monotonic()
    arena.collector.process.send_signal(signal.SIGINT)
    code = arena.collector.process.wait(END_S)
    if code in (ExitCode.OK, ExitCode.FOUND):
        raise NoEffectError("the job was over before the signal came")
    assert code == ExitCode.INTERRUPTED, f"ended with {code}: {arena.collector.last_words()}"
    arena.pause(0, 3)
    arena.collector.start()
    return Strike(effect="it ended with 130", at_s=at_s, away_s=time.monotonic() - at_s)


def freeze_collector(arena: Arena) -> Strike:
    """SIGSTOP for longer than a hold lasts, or not so long; then it goes on."""
    at_s = time.monotonic()
    with frozen(arena.collector.process.pid):
        entries = await_entries(arena)
        arena.pause(1, 24)
    return Strike(effect=f"{entries} entries waited for it", at_s=at_s, away_s=time.monotonic() - at_s)


def kill_whole_run(arena: Arena) -> Strike:
    """SIGKILL to a `run` with its own server and workers, which die with it; the same command begins them anew.

    The time to redo counts from when its first worker is up: before that nobody has a free place.
    """
    family = arena.collector.family()
    lost = holds_of(arena, *(holder.incarnation for holder in holders(arena)))
    at_s = time.monotonic()
    arena.collector.process.kill()
    arena.collector.process.wait()
    await_gone(family)
    arena.collector.start()
    wait_until(lambda: _is_ready(arena) or arena.collector.ended, timeout_s=END_S, description="a worker is up")
    up_s = time.monotonic()
    effect = f"{len(family)} processes ended, {len(lost)} holds with them"
    return Strike(effect=effect, at_s=up_s, lost=lost, away_s=up_s - at_s)


def _is_ready(arena: Arena) -> bool:
    """Whether a worker of the run that goes on says that it is up."""
    try:
        return count_ready(arena.client()) > 0
    except redis.RedisError:
        return False


def kill_enqueue(arena: Arena) -> Strike:
    """SIGKILL to `enqueue` while it feeds; given again it feeds the rest, and `collect` takes the job."""

    def fed() -> int:
        checkpoint = read_checkpoint(arena.journal_path)
        return 0 if checkpoint is None else checkpoint.counts.fed

    wait_until(lambda: fed() > 0 or arena.collector.ended, timeout_s=END_S, description="something is fed")
    at_s = time.monotonic()
    arena.collector.process.kill()
    arena.collector.process.wait()
    before = fed()
    arena.enqueue()
    after = fed()
    arena.collector.start(arena.job_command("collect"))
    assert after == arena.shape.rows, f"{after} lines are fed"
    if not 0 < before < arena.shape.rows:
        raise NoEffectError(f"{before} of {arena.shape.rows} lines were fed")
    return Strike(effect=f"{before} of {arena.shape.rows} lines were fed", at_s=at_s)


def sleep_all(arena: Arena) -> Strike:
    """Everything stands still for longer than a hold lasts, as on a laptop whose lid is closed; then all go on."""
    held = len(holds_of(arena, *(holder.incarnation for holder in holders(arena))))
    server = arena.server.process
    assert server is not None
    families = [process.pid for node in [arena.collector, *arena.nodes] for process in node.family()]
    pids = [*families, server.pid]
    arena.draw.shuffle(pids)
    at_s = time.monotonic()
    with frozen(*pids):
        asleep_s = arena.pause(21, 26)
    return Strike(effect=f"{len(pids)} processes with {held} holds slept", at_s=at_s, away_s=asleep_s)
