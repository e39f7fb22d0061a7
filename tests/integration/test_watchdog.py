"""The watchdog over made-up times: what it ends a worker for, and what it lets pass."""

from collections.abc import Iterator

import pytest
import redis
from celery.worker import state as celery_state

from common.claims import Claims
from common.keys import queue
from tests.dying import Died, Witness
from tests.worker_parts import make_batch
from worker.admission import Admission
from worker.engine_loop import EngineLoop
from worker.engines.sim_engine import SimEngine
from worker.holds import Hold
from worker.keeper import Keeper
from worker.options import EXIT_DIED, EXIT_ENGINE_KILLED, EXIT_STOPPED
from worker.outage import Outage
from worker.watchdog import STARVED_S, Limits, Watchdog

HANG_S = 60.0
THREADS = 4


class Engine(SimEngine):
    """An engine whose counters are set by hand."""

    inside = 0
    step = 0

    def unfinished(self) -> int:
        return self.inside

    def steps(self) -> int:
        return self.step


class Scene:
    """A watchdog and what it looks at; time is what a test says."""

    def __init__(self, client: redis.Redis, loop: EngineLoop) -> None:
        self.client = client
        self.engine = Engine()
        loop.submit(self.engine.start()).result()
        self.admission = Admission(10)
        self.ending = Witness(loop, drain_timeout_s=25.0)
        self.outage = Outage()
        self.keeper = Keeper(
            Claims(client), incarnation="w", digest="d", renew_s=6, outage=self.outage, is_waiting=self.ending.wait
        )
        self.dog = Watchdog(
            engine=self.engine,
            loop=loop,
            admission=self.admission,
            keeper=self.keeper,
            ending=self.ending,
            outage=self.outage,
            client=client,
            queues=(queue("m"), queue("m", "d")),
            limits=Limits(hang_s=HANG_S, give_up_after_s=3600.0),
            threads=THREADS,
        )
        self.now = 1000.0

    def live(self, duration_s: float) -> None:
        """Let so much time pass, a look each second; the loop moves on."""
        for _ in range(int(duration_s)):
            self.now += 1
            self.dog.beat()
            self.dog.look(self.now)


@pytest.fixture
def scene(valkey: redis.Redis) -> Iterator[Scene]:
    loop = EngineLoop()
    loop.start()
    scene = Scene(valkey, loop)
    yield scene
    loop.submit(scene.engine.stop()).result()
    loop.stop()


def push(client: redis.Redis, name: str) -> None:
    client.lpush(name, b"a hint")


def test_a_queue_that_is_never_empty_while_nothing_comes(scene: Scene) -> None:
    push(scene.client, queue("m", "d") + "\x06\x166")
    scene.live(STARVED_S - 5)
    with pytest.raises(Died):
        scene.live(20)
    assert scene.ending.died[0] == EXIT_STOPPED


@pytest.mark.parametrize("excuse", ["full", "no thread left", "received", "empty once", "leaving", "outage"])
def test_excuses_for_not_taking_from_a_queue(scene: Scene, excuse: str, monkeypatch: pytest.MonkeyPatch) -> None:
    push(scene.client, queue("m"))
    if excuse == "no thread left":
        monkeypatch.setattr(celery_state, "requests", dict.fromkeys(map(str, range(THREADS))))
    if excuse == "full":
        scene.admission.received("a", 10)
        scene.admission.begun("a")
        scene.admission.move(+10)
        scene.engine.inside = 10
    if excuse == "outage":
        scene.outage.missed(redis.ResponseError("MISCONF Errors writing to the AOF file: No space left on device"))
    if excuse == "leaving":
        scene.ending.is_leaving = True
    for i in range(20):
        if excuse == "received":
            scene.admission.received(f"m{i}", 1)
            scene.admission.begun(f"m{i}")
        if excuse == "empty once" and i % 4 == 0:
            scene.client.delete(queue("m"))
            scene.live(10)
            push(scene.client, queue("m"))
        scene.engine.step += 1
        scene.live(10)


def test_an_engine_that_makes_no_step(scene: Scene) -> None:
    scene.admission.move(+2)
    scene.engine.inside = 2
    for _ in range(5):
        scene.engine.step += 1
        scene.live(HANG_S - 5)
    with pytest.raises(Died):
        scene.live(10)
    assert scene.ending.died[0] == EXIT_DIED


def test_an_engine_that_hangs_in_its_end_was_ended_from_outside(scene: Scene) -> None:
    scene.admission.move(+1)
    scene.engine.inside = scene.engine.step = 1
    scene.ending.note_cut(scene.engine.steps())
    with pytest.raises(Died):
        scene.live(HANG_S + 5)
    assert scene.ending.died[0] == EXIT_ENGINE_KILLED


def test_an_engine_that_went_on_after_a_cut_hangs_by_itself(scene: Scene) -> None:
    scene.admission.move(+1)
    scene.engine.inside = scene.engine.step = 1
    scene.ending.note_cut(scene.engine.steps())
    scene.live(5)
    scene.engine.step += 1
    with pytest.raises(Died):
        scene.live(HANG_S + 5)
    assert scene.ending.died[0] == EXIT_DIED


def test_requests_that_time_out_do_not_hide_a_hung_engine(scene: Scene) -> None:
    scene.admission.move(+1)
    for _ in range(5):
        scene.engine.inside = 1
        scene.live(10)
        scene.engine.inside = 0
        scene.live(2)
    scene.engine.inside = 1
    with pytest.raises(Died):
        scene.live(15)
    assert scene.ending.died[0] == EXIT_DIED


def test_short_calls_between_long_pauses_are_no_hung_engine(scene: Scene) -> None:
    for _ in range(20):
        scene.admission.move(+1)
        scene.engine.inside = 1
        scene.live(HANG_S / 4)
        scene.engine.step += 1
        scene.engine.inside = 0
        scene.admission.move(-1)
        scene.live(HANG_S / 2)


def test_a_loop_that_stands_still(scene: Scene) -> None:
    scene.live(1)
    scene.dog.look(scene.now + 2 * HANG_S)
    assert not scene.dog.is_alive(), "nothing is in flight: not healthy, and no reason to die"
    scene.admission.move(+1)
    scene.dog.look(scene.now + 3 * HANG_S - 1)
    with pytest.raises(Died):
        scene.dog.look(scene.now + 3 * HANG_S + 1)
    assert scene.ending.died[0] == EXIT_DIED


def test_an_idle_engine_is_no_hung_engine(scene: Scene) -> None:
    scene.live(5 * HANG_S)
    assert scene.dog.is_alive()


def test_a_late_engine_is_not_well_while_it_has_requests(scene: Scene) -> None:
    scene.admission.move(+1)
    scene.engine.inside = 1
    scene.live(HANG_S / 2)
    assert scene.dog.is_alive()
    scene.live(5)
    assert not scene.dog.is_alive(), "before it is ended"
    scene.admission.move(-1)
    assert scene.dog.is_alive(), "the request has timed out: nothing is asked of it"
    scene.admission.move(+1)
    scene.engine.step += 1
    scene.live(1)
    assert scene.dog.is_alive(), "it has made a step"


def make_hold() -> Hold:
    return Hold(make_batch(1), token="t", got=0, model="m", abandon=lambda _mask: None, is_stuck=lambda: False)


def test_how_long_a_worker_has_had_nothing_to_do(scene: Scene) -> None:
    scene.live(31)
    assert scene.dog.idle_s() == 30
    hold = make_hold()
    scene.keeper.add(hold)
    assert scene.dog.idle_s() == 0, "at once, before any look"
    scene.live(20)
    scene.keeper.discard(hold)
    scene.live(10)
    assert scene.dog.idle_s() == 10


def test_work_between_two_looks_ends_idleness(scene: Scene) -> None:
    scene.live(20)
    hold = make_hold()
    scene.keeper.add(hold)
    scene.keeper.discard(hold)
    scene.live(6)
    assert scene.dog.idle_s() == 5


def test_a_hint_that_led_to_nothing_is_no_work(scene: Scene) -> None:
    scene.live(20)
    scene.admission.received("a", 8)
    scene.admission.begun("a")
    scene.live(20)
    assert scene.dog.idle_s() == 39


@pytest.mark.parametrize("reason", ["requests", "hints", "Redis away"])
def test_a_worker_that_is_not_idle(scene: Scene, reason: str) -> None:
    scene.live(20)
    if reason == "requests":
        scene.admission.move(+1)
    if reason == "hints":
        push(scene.client, queue("m"))
    if reason == "Redis away":
        scene.outage.missed(redis.ConnectionError())
    scene.live(6)
    assert scene.dog.idle_s() == 0
