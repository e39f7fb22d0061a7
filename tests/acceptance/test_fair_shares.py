"""Several jobs on one fleet, real processes: they share it equally, a small one gets through, a high one overtakes."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from common.claims import Claims
from tests.sharing import Jobs, moment, shared_fleet, write_rows
from tests.waiting import wait_until

WORKERS = 2
PLACES = 8
STEP_S = 0.02
TOKENS = 20
REQUEST_S = STEP_S * TOKENS
SMALL = 100
ALLOWED_S = 1.0
"""For processes that wait for a processor."""
TAKEN_S = PLACES * WORKERS / REQUEST_S


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    """A server of its own with two workers that run eight requests each."""
    with shared_fleet(tmp_path, workers=WORKERS, places=PLACES, step_s=STEP_S) as jobs:
        yield jobs


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """More rows than a test runs."""
    return write_rows(tmp_path / "large.jsonl", [TOKENS] * 20_000)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A few rows."""
    return write_rows(tmp_path / "small.jsonl", [TOKENS] * SMALL)


def test_three_jobs_share_equally(jobs: Jobs, tmp_path: Path) -> None:
    """Requests last over a second: collectors that wait for a processor meanwhile are not what is tested here."""
    names, large = ("a", "b", "c"), write_rows(tmp_path / "long.jsonl", [3 * TOKENS] * 20_000)
    with ExitStack() as open_:
        for name in names:
            open_.enter_context(jobs.running(name, large))
        wait_until(lambda: all(jobs.done(name) for name in names), timeout_s=60, description="all have begun")
        before = {name: jobs.done(name) for name in names}

        def gained() -> dict[str, int]:
            return {name: jobs.done(name) - before[name] for name in names}

        wait_until(lambda: sum(gained().values()) >= 450, timeout_s=120, description="450 results")
        gains = gained()
    third = sum(gains.values()) / 3
    assert all(0.85 * third <= gain <= 1.15 * third for gain in gains.values()), gains


@pytest.mark.parametrize("begun_by", ["run", "enqueue"])
def test_a_small_job_behind_a_large_one_takes_twice_its_time(
    jobs: Jobs, large: Path, small: Path, begun_by: str
) -> None:
    """Also behind one that only `enqueue` fed: the whole window of it is in Redis then."""
    alone = jobs.run("alone", small)
    with ExitStack() as open_:
        if begun_by == "run":
            open_.enter_context(jobs.running("large", large))
            wait_until(lambda: jobs.done("large") > 2 * SMALL, timeout_s=60, description="the large one is under way")
        else:
            jobs.enqueue("large", large)
        behind = jobs.run("behind", small)
    assert behind.job_s <= 2 * alone.job_s + max(alone.longest_s, behind.longest_s) + ALLOWED_S, (alone, behind)


def test_what_enqueue_fed_runs_without_a_collector(jobs: Jobs, small: Path) -> None:
    jobs.enqueue("left", small)
    claims = Claims(jobs.server.client())

    def stages() -> set[str]:
        return {seen.st for seen in claims.look("left").micro_batches.values()}

    wait_until(lambda: stages() == {"FULL"}, timeout_s=60, description="workers have published all of it")
    assert jobs.done("left") == 0
    jobs.run("left", small)
    assert len(jobs.results("left")) == SMALL


def test_a_high_job_overtakes_and_a_low_one_waits(jobs: Jobs, large: Path, small: Path) -> None:
    with jobs.running("normal", large):
        wait_until(lambda: jobs.done("normal") > 2 * SMALL, timeout_s=60, description="the normal one is under way")
        with jobs.running("low", large, "--priority", "low"):
            alone_s = SMALL / TAKEN_S
            high = jobs.run("high", small, "--priority", "high")
            assert high.job_s <= alone_s + 2 * high.longest_s + ALLOWED_S
            assert jobs.done("low") == 0
        began = sorted(moment(result["meta"]["started_at"]) for result in jobs.results("high"))
        normal = [moment(result["meta"]["started_at"]) for result in jobs.results("normal")]
    overtaken = sum(began[0] < at < began[-1] for at in normal)
    assert overtaken <= 2 * PLACES * WORKERS, "what workers had taken from the queue before"
