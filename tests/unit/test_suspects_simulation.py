"""Ten thousand fleets in virtual time: every poison line is called so, no innocent is, and none costs too much."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from producer.suspects import WORKERS_A_SUSPECT, Loss, Standing
from tests.suspects_model import Fleet

SEEDS = 10_000
SLICES = 10


@pytest.mark.parametrize("part", range(SLICES))
def test_no_innocent_is_called_poison_and_every_poison_is(part: int) -> None:
    deaths: Counter[str] = Counter()
    innocent_suspects = 0
    for seed in range(part, SEEDS, SLICES):
        fleet = Fleet(seed).run()
        assert fleet.called == set(fleet.poison), f"seed {seed}"
        assert fleet.results == set(range(fleet.rows)) - fleet.called, f"seed {seed}"
        assert fleet.most_alone <= max(1, len(fleet.workers) // WORKERS_A_SUSPECT), f"seed {seed}"
        for seq, cause in fleet.poison.items():
            check_cost(fleet.blames(seq), cause=cause)
        deaths += fleet.deaths
        innocent_suspects += sum(len(fleet.blames(seq)) >= 2 for seq in fleet.results)
    assert min(deaths[cause] for cause in ("self", "outside", "left", "vanished")) > 100
    assert innocent_suspects > 1000, "innocents come under suspicion, and out of it again"


def check_cost(blames: list[Loss], *, cause: str) -> None:
    """At most 3 blamed losses where the process falls by itself, 5 otherwise; kills by chance come on top of the 3."""
    by_chance = sum(loss.armed and loss.cause == "outside" for loss in blames) if cause == "self" else 0
    assert len(blames) <= (min(5, 3 + by_chance) if cause == "self" else 5)


def count_deaths(losses: Iterable[Loss]) -> Standing:
    """A plain counter: it does not ask who ran alone."""
    blamed = sum(loss.blames for loss in losses)
    return Standing.POISON if blamed >= 3 else Standing.SUSPECT if blamed == 2 else Standing.INNOCENT


@pytest.mark.parametrize(("seeds", "fault"), [(300, {"crowded": True}), (3000, {"judged_by": count_deaths})])
def test_the_simulation_finds_a_policy_that_calls_innocents_poison(seeds: int, fault: dict[str, Any]) -> None:
    fleets = [Fleet(seed, **fault).run() for seed in range(seeds)]
    assert any(fleet.called - set(fleet.poison) for fleet in fleets)
