"""A collector's turns come less often where results trickle in, and at once where something waits for them."""

from producer.linger import FEW, LONGEST_S, MOST, SHORTEST_S, Linger

LEAST_S = 0.03


def pauses(linger: Linger, *moved: int, has_time: bool = True) -> list[float]:
    """Seconds after each of the turns."""
    return [linger.pause_s(each, took_s=0.0, has_time=has_time) for each in moved]


def test_turns_that_find_little_come_less_often_up_to_a_limit() -> None:
    found = pauses(Linger(LEAST_S), *(n % FEW for n in range(60)))
    assert found[0] < 1.2 * LEAST_S, "a short job is not to feel it"
    assert found == sorted(found)
    assert found[-1] == MOST * LEAST_S


def test_much_at_once_is_followed_closely_again() -> None:
    linger = Linger(LEAST_S)
    pauses(linger, *[0] * 60)
    assert pauses(linger, FEW, FEW, 0)[:2] == [LEAST_S, LEAST_S]


def test_where_a_worker_waits_every_turn_comes_soon() -> None:
    linger = Linger(LEAST_S)
    pauses(linger, *[0] * 60)
    assert set(pauses(linger, 0, 1, 2, has_time=False)) == {LEAST_S}


def test_a_turn_that_took_long_is_followed_at_once_and_no_pause_is_long() -> None:
    assert Linger(LEAST_S).pause_s(0, took_s=1.0, has_time=True) == SHORTEST_S
    assert Linger(60.0).pause_s(0, took_s=0.0, has_time=True) == LONGEST_S
