"""Admission: what counts, when the gate opens and closes, and that the consumer is woken when places fall free."""

from types import SimpleNamespace

import pytest

from worker.admission import MOST_RESTING, Admission, gate_step
from worker.consumer import threads_for


@pytest.mark.parametrize(("target", "threads"), [(5, 16), (80, 80), (100_000, 512)])
def test_threads_are_only_an_upper_bound(target: int, threads: int) -> None:
    assert threads_for(target) == threads


def test_requests_count_from_the_message_to_their_end() -> None:
    admission = Admission(80)
    admission.received("a", 32)
    admission.received("b", 32)
    assert (admission.load, admission.in_flight, admission.is_open()) == (64, 0, True)
    admission.received("c", 32)
    assert not admission.is_open()
    admission.move(+30)  # two of the 32 had been brought by others
    admission.begun("a")
    assert (admission.load, admission.in_flight) == (94, 30)
    admission.begun("a")
    assert admission.load == 94
    admission.move(-15)
    assert (admission.load, admission.is_open()) == (79, True)


def test_early_finishers_open_the_gate_before_their_micro_batch_ends() -> None:
    admission, woken = Admission(40), []
    admission.on_reopen(lambda: woken.append(admission.load))
    admission.received("a", 32)
    admission.move(+32)
    admission.begun("a")
    admission.received("b", 32)
    assert not admission.is_open()
    for _ in range(24):
        admission.move(-1)
    assert not woken
    admission.move(-1)
    assert woken == [39]
    admission.move(-1)
    assert woken == [39], "one wake is enough until the gate refuses again"


def test_a_waiting_request_holds_no_place() -> None:
    admission = Admission(1)
    admission.move(+1)
    assert not admission.is_open()
    admission.move(-1)
    assert admission.is_open()


def test_those_that_wait_for_another_attempt_are_bounded() -> None:
    admission, woken = Admission(10), []
    admission.on_reopen(lambda: woken.append(True))
    admission.rest(MOST_RESTING * 10 - 1)
    assert admission.is_open()
    admission.rest(+1)
    assert (admission.load, admission.is_open()) == (0, False)
    admission.rest(-1)
    assert (admission.is_open(), woken) == (True, [True])


def test_a_message_received_twice_counts_once() -> None:
    admission = Admission(100)
    admission.received("a", 32)
    admission.received("a", 32)
    assert admission.load == 32
    assert admission.received_total == 2
    admission.begun("a")
    assert admission.load == 0


def test_what_celery_forgot_is_forgotten() -> None:
    admission, woken = Admission(30), []
    admission.on_reopen(lambda: woken.append(True))
    admission.received("a", 32)
    assert not admission.is_open()
    admission.reconcile({"a": object()})
    assert admission.load == 32
    admission.reconcile({})
    assert (admission.load, woken) == (0, [True])


def test_a_target_that_rises_wakes_the_consumer() -> None:
    admission, woken = Admission(10), []
    admission.on_reopen(lambda: woken.append(True))
    admission.move(+8)
    assert admission.is_open()
    admission.set_target(5)
    assert not admission.is_open()
    admission.move(-2)
    assert not woken
    admission.set_target(7)
    assert (admission.is_open(), woken) == (True, [True])


def test_closed_for_good() -> None:
    admission, woken = Admission(10), []
    admission.on_reopen(lambda: woken.append(True))
    admission.close()
    assert not admission.is_open()
    assert woken == [True]


def test_the_gate_stands_before_celerys_own() -> None:
    """The bootstep wraps `can_consume`, again at each reconnect, and wakes the hub of the connection it is on."""
    admission, calls = Admission(10), []
    for connection in ("first", "second"):
        allowed = [True]
        qos = SimpleNamespace(can_consume=lambda allowed=allowed: allowed[0])
        channel = SimpleNamespace(qos=qos)
        consumer = SimpleNamespace(
            task_consumer=SimpleNamespace(channel=channel),
            hub=SimpleNamespace(call_soon=lambda _function, name=connection: calls.append(name)),
        )
        vars(gate_step(admission))["start"](None, consumer)
        assert qos.can_consume()
        allowed[0] = False
        assert not qos.can_consume()
        allowed[0] = True
        admission.move(+10)
        assert not qos.can_consume()
        admission.move(-10)
        assert qos.can_consume()
    assert calls == ["first", "second"]


def test_a_suspect_holds_messages_back_and_the_next_comes_alone() -> None:
    admission = Admission(80)
    woken: list[int] = []
    admission.on_reopen(lambda: woken.append(1))
    admission.received("suspect", 1)
    with admission.held_back():
        admission.begun("suspect")
        assert not admission.is_open()
        with admission.held_back():
            pass
        assert not admission.is_open(), "another suspect waits"
        assert woken == []
    assert woken == [1]
    assert admission.is_open()
    admission.received("a", 32)
    assert not admission.is_open(), "it may be the next suspect"
    admission.move(+32)
    admission.begun("a")
    assert woken == [1, 1]
    admission.received("b", 32)
    assert admission.is_open()
