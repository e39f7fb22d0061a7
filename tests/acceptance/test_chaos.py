"""Two minutes of seeded chaos on real processes: a part of what `python -m benchmarks.chaos` does for longer."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.chaos.figures import Figures
from benchmarks.chaos.kinds import KINDS, Kind
from benchmarks.chaos.lines import undisturbed
from benchmarks.chaos.run import RunRecord, run_once

SEED = 20261201
TRIES = 3
"""A fault without effect (nothing was held just then) tells nothing: the next seed is taken."""
CHOSEN = (
    ("kill -9", "worker"),
    ("kill -9", "supervisor"),
    ("kill -9", "collector"),
    ("kill -9", "run with its own Redis and workers"),
    ("kill -9, data kept", "Redis"),
    ("FLUSHALL", "Redis"),
)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What the lines come to when nothing happens."""
    return undisturbed(tmp_path_factory.mktemp("chaos") / "undisturbed")


def chosen() -> list[Kind]:
    return [kind for kind in KINDS if (kind.fault, kind.process) in CHOSEN]


@pytest.mark.kill
@pytest.mark.parametrize("kind", chosen(), ids=lambda kind: kind.name)
def test_chaos(kind: Kind, expected: list[dict[str, Any]], tmp_path: Path) -> None:
    records: list[RunRecord] = []
    for seed in range(SEED, SEED + TRIES):
        records.append(run_once(kind, seed=seed, undisturbed=expected, keep=tmp_path))
        if records[-1].void is None:
            break
    figures = Figures(kind, tuple(records))
    print(figures.cells(), [record.to_json() for record in records])
    assert not figures.misses


def test_every_chosen_kind_is_one() -> None:
    assert len(chosen()) == len(CHOSEN)
