"""What counts as a loop that gets on: pure, over made-up times."""

from producer.pulse import Pulse, all_ready, all_well


class Clock:
    """A monotonic clock that a test sets."""

    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def test_a_long_wait_between_steps_is_well_and_a_long_step_is_not() -> None:
    clock = Clock()
    with Pulse(still_s=60, now=clock) as pulse:
        clock.now_s += 3600
        assert pulse.is_well
        with pulse.step():
            clock.now_s += 59
            assert pulse.is_well
            clock.now_s += 1
            assert not pulse.is_well
            assert not all_well()
        assert all_well()


def test_a_step_that_fails_has_ended() -> None:
    clock = Clock()
    pulse = Pulse(still_s=60, now=clock)
    try:
        with pulse.step():
            raise ZeroDivisionError
    except ZeroDivisionError:
        clock.now_s += 3600
    assert pulse.is_well


def test_a_process_is_ready_when_each_of_its_loops_is() -> None:
    assert all_well()
    assert not all_ready(), "nothing runs"
    with Pulse() as one:
        one.is_ready = True
        assert all_ready()
        with Pulse() as other:
            assert not all_ready()
            other.is_ready = True
            assert all_ready()
        one.is_ready = False
        assert not all_ready()
    assert not all_ready()
