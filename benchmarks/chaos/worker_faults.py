"""What befalls workers in the middle of a job, each fault with the holds that it ended."""

import signal
import time

from benchmarks.chaos.arena import Arena
from benchmarks.chaos.node import Node
from benchmarks.chaos.strike import NoEffectError, Strike, await_holder, await_taken_up, holders, holds_of
from common import keys
from tests.acceptance.real_fleet import engine_core
from tests.faults.freezing import freeze, frozen
from tests.processes import await_gone
from tests.waiting import wait_until

DRAIN_S = 40.0
POISON_S = 60.0
EXPIRED_S = 45.0
"""A hold is lost after 20 s, which is seen within 2 s; then a free place is needed."""


def kill_worker(arena: Arena) -> Strike:
    """SIGKILL to one worker process; its supervisor starts another."""
    return _end_worker(arena, signal.SIGKILL)


def abort_worker(arena: Arena) -> Strike:
    """SIGABRT, as from a fault in native code: it counts as its own doing."""
    return _end_worker(arena, signal.SIGABRT)


def kill_core(arena: Arena) -> Strike:
    """SIGKILL to the real engine's core; its worker ends by itself."""
    victim = await_holder(arena)
    core = engine_core(victim.process)
    at_s = time.monotonic()
    core.kill()
    await_gone([core, victim.process], timeout_s=20)
    lost = holds_of(arena, victim.incarnation)
    return Strike(effect=f"{len(lost)} holds of a worker without its core", at_s=at_s, lost=lost)


def kill_supervisor(arena: Arena) -> Strike:
    """SIGKILL to a supervisor; its workers die with it, and the same command is given again at once."""
    node, names = _holding_node(arena)
    family = node.family()
    at_s = time.monotonic()
    node.process.kill()
    node.process.wait()
    await_gone(family)
    lost = holds_of(arena, *names)
    node.start()
    return Strike(effect=f"{len(lost)} holds of {len(family) - 1} orphans", at_s=at_s, lost=lost)


def freeze_worker(arena: Arena) -> Strike:
    """SIGSTOP to one worker until others have taken up all that it held; then it thaws, and finds its holds gone."""
    victim = await_holder(arena)
    at_s = time.monotonic()
    with frozen(victim.process.pid):
        lost = holds_of(arena, victim.incarnation)
        arena.watcher.lose(lost, at_s=at_s)
        await_taken_up(arena, timeout_s=EXPIRED_S)
    return Strike(effect=f"{len(lost)} holds expired under a frozen worker", at_s=at_s)


def vanish_host(arena: Arena) -> Strike:
    """SIGSTOP to a supervisor and all its workers, for good: nobody certifies them."""
    node, names = _holding_node(arena)
    at_s = time.monotonic()
    freeze([process.pid for process in node.family()])
    lost = holds_of(arena, *names)
    return Strike(effect=f"{len(lost)} holds of a vanished host", at_s=at_s, lost=lost)


def drain_node(arena: Arena) -> Strike:
    """SIGTERM to a supervisor: it hands back what cannot end in time, exits 0, and is started again."""
    node, names = _holding_node(arena)
    at_s = time.monotonic()
    node.process.terminate()
    lost = holds_of(arena, *names)
    code = node.process.wait(DRAIN_S)
    assert code == 0, f"the drained node ended with {code}: {node.last_words()}"
    node.start()
    return Strike(effect=f"{len(lost)} holds when it was told to leave", at_s=at_s, lost=lost)


def meet_poison(arena: Arena) -> Strike:
    """Nothing from outside: the first poisonous line ends its worker."""
    at_s, client = time.monotonic(), arena.client()
    wait_until(
        lambda: client.hlen(keys.DIED) or arena.collector.ended, timeout_s=POISON_S, description="a worker dies of it"
    )
    if not client.hlen(keys.DIED):
        raise NoEffectError("no worker died")
    return Strike(effect="a worker died of a line", at_s=at_s)


def _holding_node(arena: Arena) -> tuple[Node, list[str]]:
    """A node of which some worker holds something, and the names of all its workers that do."""
    node = await_holder(arena).node
    return node, [holder.incarnation for holder in holders(arena) if holder.node is node]


def _end_worker(arena: Arena, signum: signal.Signals) -> Strike:
    victim = await_holder(arena)
    at_s = time.monotonic()
    victim.process.send_signal(signum)
    await_gone([victim.process])
    lost = holds_of(arena, victim.incarnation)
    return Strike(effect=f"{len(lost)} holds of a dead worker", at_s=at_s, lost=lost)
