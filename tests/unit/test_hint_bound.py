"""The bound of unclaimed hints: what a fleet runs at once, more where that is gone between two turns."""

from producer.hint_bound import DRY_TURNS, FIRST_NUDGE_S, LAST_NUDGE_S, SHRINK_S, STEP, HintBound

FLEET = 64
MOST = 8192
TURN_S = 0.05


def drain(bound: HintBound, *, turns: int, now_s: float = 0.0) -> int:
    """Let a fleet take all between any two turns; the room that the last turn gave."""
    room = 0
    for _ in range(turns):
        now_s += TURN_S
        room = bound.room(0, least=FLEET, most=MOST, now_s=now_s)
        bound.note(room, hinted=True, left=True, now_s=now_s)
    return room


def test_there_is_room_for_what_the_fleet_runs_at_once() -> None:
    bound = HintBound(now_s=0.0)
    assert bound.room(0, least=FLEET, most=MOST, now_s=0.0) == FLEET
    assert bound.room(40, least=FLEET, most=MOST, now_s=0.0) == FLEET - 40
    assert bound.room(FLEET + 8, least=FLEET, most=MOST, now_s=0.0) == 0, "the fleet has become smaller"
    assert bound.room(0, least=FLEET, most=10, now_s=0.0) == 10, "the window is smaller"


def test_a_fleet_that_begins_takes_all_at_once_and_changes_nothing() -> None:
    assert drain(HintBound(now_s=0.0), turns=DRY_TURNS) == FLEET


def test_a_fleet_that_takes_all_turn_after_turn_gets_more_up_to_the_window() -> None:
    assert drain(HintBound(now_s=0.0), turns=DRY_TURNS + 1) == int(FLEET * STEP)
    assert drain(HintBound(now_s=0.0), turns=DRY_TURNS + 30) == MOST


def test_a_fleet_is_known_to_be_fast_until_its_bound_has_gone_back() -> None:
    bound = HintBound(now_s=0.0)
    drain(bound, turns=DRY_TURNS)
    assert not bound.has_grown
    drain(bound, turns=DRY_TURNS + 1)
    assert bound.has_grown
    now_s = (2 * DRY_TURNS + 1) * TURN_S
    for _ in range(20):
        now_s += SHRINK_S
        bound.room(FLEET, least=FLEET, most=MOST, now_s=now_s)
    assert not bound.has_grown


def test_the_end_of_a_job_is_no_reason_to_grow() -> None:
    bound = HintBound(now_s=0.0)
    for turn in range(10):
        assert bound.room(0, least=FLEET, most=MOST, now_s=turn * TURN_S) == FLEET
        bound.note(FLEET, hinted=True, left=False, now_s=turn * TURN_S)


def test_what_is_needed_no_more_goes_back() -> None:
    bound = HintBound(now_s=0.0)
    high = drain(bound, turns=DRY_TURNS + 5)
    assert high > 2 * FLEET
    now_s = (DRY_TURNS + 5) * TURN_S
    for _ in range(10):
        now_s += SHRINK_S
        bound.note(1, hinted=True, left=True, now_s=now_s)
        room = bound.room(1, least=FLEET, most=MOST, now_s=now_s)
    assert room == FLEET - 1


def test_where_nothing_moves_one_hint_is_repeated_more_and_more_rarely() -> None:
    bound = HintBound(now_s=0.0)
    bound.note(32, hinted=True, left=True, now_s=0.0)
    nudges = []
    for now_s in range(1, 1000):
        bound.note(32, hinted=False, left=True, now_s=float(now_s))
        if bound.is_stuck(now_s=float(now_s)):
            nudges.append(now_s)
    assert nudges == [10, 30, 70, 150, 310, 470, 630, 790, 950]
    assert (nudges[0], nudges[-1] - nudges[-2]) == (FIRST_NUDGE_S, LAST_NUDGE_S)
    bound.note(31, hinted=False, left=True, now_s=1000.0)
    assert [bound.is_stuck(now_s=now_s) for now_s in (1009.0, 1010.0)] == [False, True], "a claim begins it anew"
