"""Who is blamed, who travels alone and when, and who is poison: tables over journaled losses."""

import pytest

from producer.suspects import (
    Loss,
    Standing,
    cause_of_loss,
    explain,
    free_turns,
    judge,
    next_in_turn,
    part,
)

FELL, ENDED = Loss(False, "self"), Loss(False, "outside")
ALONE_FELL, ALONE_ENDED = Loss(True, "self"), Loss(True, "outside")
WAITED, VANISHED, LEFT = Loss(False, "waited"), Loss(True, "vanished"), Loss(True, "left")


@pytest.mark.parametrize(
    ("losses", "standing"),
    [
        ([], Standing.INNOCENT),
        ([FELL], Standing.INNOCENT),
        ([FELL, ENDED], Standing.SUSPECT),
        ([FELL] * 9, Standing.SUSPECT),
        ([ENDED, ENDED, ALONE_ENDED], Standing.SUSPECT),
        ([ENDED, ENDED, ALONE_ENDED, ALONE_ENDED], Standing.SUSPECT),
        ([ENDED, ENDED, ALONE_ENDED, ALONE_ENDED, ALONE_ENDED], Standing.POISON),
        ([ENDED, ENDED, ALONE_FELL], Standing.POISON),
        ([ENDED, WAITED, WAITED, VANISHED, LEFT], Standing.INNOCENT),
        ([ENDED, ENDED, WAITED, WAITED, WAITED, VANISHED, VANISHED, VANISHED, LEFT, LEFT, LEFT], Standing.SUSPECT),
    ],
)
def test_standing(losses: list[Loss], standing: Standing) -> None:
    assert judge(losses) is standing
    assert judge(reversed(losses)) is standing


@pytest.mark.parametrize(
    ("cause", "solo", "armed", "journaled"),
    [
        ("self", False, False, "self"),
        ("outside", True, True, "outside"),
        ("self", True, False, "waited"),
        ("outside", True, False, "waited"),
        ("vanished", True, False, "vanished"),
        ("left", True, False, "left"),
    ],
)
def test_a_suspect_that_still_waited_is_not_blamed(cause: str, solo: bool, armed: bool, journaled: str) -> None:
    assert cause_of_loss(cause, solo=solo, armed=armed) == journaled


def test_only_suspects_are_parted_off() -> None:
    losses = {1: [FELL, FELL], 2: [FELL], 4: [ENDED, FELL], 5: [WAITED, WAITED]}
    assert part([1, 2, 3, 4, 5], losses) == ([2, 3, 5], [1, 4])
    assert part([2, 3], losses) == ([2, 3], [])


@pytest.mark.parametrize(
    ("travelling", "workers", "turns"), [(0, 0, 1), (0, 1, 1), (1, 15, 0), (1, 16, 1), (0, 80, 10), (3, 8, 0)]
)
def test_one_worker_in_eight_may_have_a_suspect(travelling: int, workers: int, turns: int) -> None:
    assert free_turns(travelling, workers=workers) == turns


def test_those_that_killed_least_while_alone_go_first() -> None:
    waiting = {1: [ALONE_ENDED, ALONE_ENDED], 2: [ALONE_ENDED], 3: [FELL, FELL, FELL], 4: [VANISHED]}
    assert next_in_turn(waiting, 9) == [3, 4, 2, 1]
    assert next_in_turn(waiting, 1) == [3]


def test_the_result_says_what_happened() -> None:
    said = explain([ENDED, WAITED, FELL, VANISHED, ALONE_FELL])
    assert said.startswith("3 worker processes died while they ran this request, 1 of them with nothing else")
    assert "fell by themselves: 2, ended from outside: 1" in said
