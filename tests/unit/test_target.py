"""The target while a worker runs: when it falls, how far, and how slowly it rises again."""

from itertools import pairwise

import pytest

from worker.target import LOOK_S, RAISE_EVERY_S, SETTLE_S, TargetPolicy, target_for


@pytest.mark.parametrize(("concurrency", "target"), [(1, 2), (4, 5), (8, 10), (64, 80), (256, 320)])
def test_target_is_a_quarter_above_the_engine(concurrency: int, target: int) -> None:
    assert target_for(concurrency) == target


class Life:
    """A policy and its clock: looks at it every `LOOK_S` seconds."""

    def __init__(self, policy: TargetPolicy) -> None:
        self.policy = policy
        self.changes: list[tuple[float, int, str]] = []
        self._now = 1000.0
        self._preemptions = 0

    def go_on(self, duration_s: float, *, preempted: int = 0) -> "Life":
        """Live so long, with so many preemptions between two looks."""
        for _ in range(int(duration_s / LOOK_S)):
            self._now += LOOK_S
            self._preemptions += preempted
            if reason := self.policy.look(now=self._now, preemptions=self._preemptions):
                self.changes.append((self._now - 1000.0, self.policy.target, reason))
        return self


def test_without_trouble_it_stays() -> None:
    assert not Life(TargetPolicy(64)).go_on(3600, preempted=20).changes, "a few are how a full cache looks"


def test_many_preemptions_lower_it_step_by_step_to_a_quarter() -> None:
    life = Life(TargetPolicy(64)).go_on(600, preempted=100)
    assert [target for _, target, _ in life.changes] == [64, 51, 40, 32, 25, 20]
    at_s = [at for at, _, _ in life.changes]
    assert all(later - earlier >= SETTLE_S for earlier, later in pairwise(at_s))
    assert {reason for _, _, reason in life.changes} == {"100 requests preempted"}


def test_it_rises_slowly_once_memory_suffices() -> None:
    life = Life(TargetPolicy(64)).go_on(60, preempted=100)
    low = life.policy.target
    life.changes.clear()
    life.go_on(RAISE_EVERY_S - LOOK_S)
    assert not life.changes
    life.go_on(3600)
    targets = [target for _, target, _ in life.changes]
    assert targets == sorted(targets)
    assert targets[0] == low + 4
    assert targets[-1] == 80
    assert all("memory sufficed" in reason for _, _, reason in life.changes)


def test_a_life_after_a_death_by_want_of_memory_begins_low_and_rises() -> None:
    policy = TargetPolicy(64, share=0.5)
    assert (policy.target, policy.most) == (40, 80)
    life = Life(policy).go_on(11 * RAISE_EVERY_S)
    assert life.changes[0][1] == 44
    assert policy.target == 80


@pytest.mark.parametrize(("concurrency", "share"), [(1, 1 / 16), (1, 1.0), (2, 0.25)])
def test_one_request_is_always_wanted(concurrency: int, share: float) -> None:
    life = Life(TargetPolicy(concurrency, share=share)).go_on(600, preempted=100)
    assert life.policy.target >= 1
