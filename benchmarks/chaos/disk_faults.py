"""What befalls the disk under a job in its middle: full, or without its unsynced writes as after a power cut."""

import time

from benchmarks.chaos.arena import Arena
from benchmarks.chaos.strike import NoEffectError, Strike
from common.errors import ExitCode
from tests.faults.small_disk import SmallDisk

STOP_S = 40.0
UNSYNCED_BYTES = 64 * 1024


def fill_disk(arena: Arena) -> Strike:
    """ENOSPC to every write, until the job has stopped; then there is room, and the same command goes on."""
    at_s, disk = time.monotonic(), _disk(arena)
    disk.fill()
    _await_stop(arena)
    disk.make_room()
    arena.collector.start()
    return Strike(effect="it ended with 3 for want of room", at_s=at_s, away_s=time.monotonic() - at_s)


def cut_power(arena: Arena) -> Strike:
    """What was not synced is lost, and the collector is gone; the same command goes on with what the disk has."""
    at_s, disk = time.monotonic(), _disk(arena)
    if not disk.can_fail:
        raise NoEffectError(f"{disk.kind} keeps what it has")
    before = len(arena.durable_lines())
    unsynced = disk.path / "unsynced"
    unsynced.write_bytes(bytes(UNSYNCED_BYTES))
    disk.fail()
    arena.collector.process.kill()
    arena.collector.process.wait()
    with arena.watcher.reading:
        disk.repair()
    left, kept = len(arena.durable_lines()), unsynced.exists() and unsynced.stat().st_size == UNSYNCED_BYTES
    arena.pause(0, 3)
    arena.collector.start()
    if kept:
        raise NoEffectError("the disk has kept what was not synced")
    return Strike(
        effect=f"an unsynced file is gone; of {before} bytes of the ordered file {left} are left",
        at_s=at_s,
        away_s=time.monotonic() - at_s,
    )


def _disk(arena: Arena) -> SmallDisk:
    if arena.disk is None:
        raise NoEffectError("nothing lies on a disk of its own")
    return arena.disk


def _await_stop(arena: Arena) -> None:
    code = arena.collector.process.wait(STOP_S)
    if code in (ExitCode.OK, ExitCode.FOUND):
        raise NoEffectError("the job was over before the disk was full")
    assert code == ExitCode.NOT_FINISHED, f"ended with {code}: {arena.collector.last_words()}"
