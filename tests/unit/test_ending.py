"""How a worker ends: what each signal does, with which exit code, and whose doing an engine's end was."""

import signal

import pytest

from common.errors import EngineDeadError, EngineMemoryError
from common.log import Event
from tests.dying import Died, Witness
from tests.waiting import wait_until
from worker.engine_loop import EngineLoop
from worker.options import EXIT_DIED, EXIT_ENGINE_KILLED, EXIT_OUT_OF_MEMORY


class Child:
    """A process of an engine, as `multiprocessing` shows it."""

    def __init__(self, *exitcodes: int | None) -> None:
        self._exitcodes = list(exitcodes)

    @property
    def exitcode(self) -> int | None:
        return self._exitcodes.pop(0) if len(self._exitcodes) > 1 else self._exitcodes[0]


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def ending(told: list[str]) -> Witness:
    loop = EngineLoop()
    loop.start()
    ending = Witness(loop, drain_timeout_s=0.2)
    ending.when_leaving(lambda: told.append("leave"))
    ending.when_stopping(lambda: told.append("stop"))
    return ending


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_first_signal_drains_and_then_stops_what_is_left(ending: Witness, told: list[str], signum: int) -> None:
    ending.on_signal(signum, None)
    assert ending.is_leaving
    wait_until(lambda: told == ["leave", "stop"], timeout_s=5, description="the drain timeout is over")
    assert (ending.is_stopping, ending.is_aborted, ending.exit_code()) == (True, False, 0)
    assert ending.wait(0), "what is finished may still be published"


def test_a_second_sigterm_changes_nothing(ending: Witness) -> None:
    ending.on_signal(signal.SIGTERM, None)
    ending.on_signal(signal.SIGTERM, None)
    assert (ending.is_aborted, ending.exit_code()) == (False, 0)


def test_interrupt_after_any_signal_aborts(ending: Witness, told: list[str]) -> None:
    ending.on_signal(signal.SIGTERM, None)
    ending.on_signal(signal.SIGINT, None)
    assert (ending.is_aborted, ending.exit_code()) == (True, 130)
    wait_until(lambda: "stop" in told, timeout_s=5, description="everything is stopped")


def test_what_could_not_be_handed_back_shows(ending: Witness) -> None:
    ending.leave()
    ending.left_something = True
    assert ending.exit_code() == 3


@pytest.mark.parametrize(
    ("codes", "exit_code"),
    [
        ([], EXIT_DIED),
        ([1], EXIT_DIED),
        ([-signal.SIGSEGV], EXIT_DIED),
        ([None], EXIT_DIED),
        ([-signal.SIGKILL], EXIT_ENGINE_KILLED),
        ([-signal.SIGTERM], EXIT_ENGINE_KILLED),
        ([0], EXIT_ENGINE_KILLED),
        ([1, -signal.SIGKILL], EXIT_ENGINE_KILLED),
    ],
)
def test_whose_doing_it_was(
    ending: Witness, monkeypatch: pytest.MonkeyPatch, codes: list[int | None], exit_code: int
) -> None:
    monkeypatch.setattr("worker.ending.CHILD_S", 0.2)
    monkeypatch.setattr("multiprocessing.active_children", lambda: [Child(code) for code in codes])
    ending.watch_children()
    with pytest.raises(Died):
        ending.die_of_engine(EngineDeadError("gone"))
    assert ending.died == (exit_code, Event.ENGINE_DIED)


def test_want_of_memory_has_an_exit_code_of_its_own(ending: Witness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("multiprocessing.active_children", lambda: [Child(1)])
    ending.watch_children()
    with pytest.raises(Died):
        ending.die_of_engine(EngineMemoryError("tried to allocate"))
    assert ending.died[0] == EXIT_OUT_OF_MEMORY


def test_a_child_that_is_just_being_reaped_is_asked_again(ending: Witness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("multiprocessing.active_children", lambda: [Child(None, None, -signal.SIGKILL)])
    ending.watch_children()
    with pytest.raises(Died):
        ending.die_of_engine(EngineDeadError("gone"))
    assert ending.died[0] == EXIT_ENGINE_KILLED


def test_a_signal_to_the_group_ends_engine_and_worker_in_peace(
    ending: Witness, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("multiprocessing.active_children", lambda: [Child(0)])
    ending.watch_children()
    ending.on_signal(signal.SIGTERM, None)
    ending.die_of_engine(EngineDeadError("gone"))
    wait_until(lambda: told == ["leave", "stop"], timeout_s=5, description="what is held is handed back")
    assert ending.exit_code() == 0


def test_an_engine_that_falls_in_a_drain_is_a_death(ending: Witness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("multiprocessing.active_children", lambda: [Child(-signal.SIGSEGV)])
    ending.watch_children()
    ending.on_signal(signal.SIGTERM, None)
    with pytest.raises(Died):
        ending.die_of_engine(EngineDeadError("gone"))
    assert ending.died[0] == EXIT_DIED
