"""Which model answers a line, and through which queue."""

import pytest

from common.errors import ErrorKind
from producer.counts import Counts
from producer.fleet import Fleet, ModelChoice, Worker, route
from producer.outcome import exit_code_of, status_of


def fleet(*models: str) -> Fleet:
    """A worker for each of `models`, `name` or `name@build`."""
    parts = (model.partition("@") for model in models)
    return Fleet(tuple(Worker(f"w-{n}", (name,), build or "d", "ready", 8) for n, (name, _, build) in enumerate(parts)))


@pytest.mark.parametrize(
    ("named", "live", "pinned", "line", "expected"),
    [
        pytest.param("m", (), {}, "m", "m", id="named by the job, nobody there"),
        pytest.param("m", ("n",), {}, None, "m", id="named by the job, not by the line"),
        pytest.param("m", ("n",), {}, "n", ErrorKind.MODEL_NOT_FOUND, id="served, but not the job's"),
        pytest.param(None, ("m",), {}, "m", "m", id="served"),
        pytest.param(None, ("m",), {}, None, "m", id="the only one"),
        pytest.param(None, ("m", "n"), {}, None, ErrorKind.INVALID_REQUEST, id="several, none named"),
        pytest.param(None, ("m",), {}, "x", ErrorKind.MODEL_NOT_FOUND, id="served by nobody"),
        pytest.param(None, ("*",), {}, "x", "x", id="any name"),
        pytest.param(None, ("*",), {}, None, "simulated", id="any name, none named"),
        pytest.param(None, ("*", "m"), {}, None, "m", id="any name, but one has a name"),
        pytest.param(None, ("n",), {"m": "d"}, "m", "m", id="used before, its worker restarts"),
    ],
)
def test_choice(
    named: str | None, live: tuple[str, ...], pinned: dict[str, str], line: str | None, expected: str | ErrorKind
) -> None:
    models = ModelChoice(named)
    models.update(fleet(*live), pinned)
    chosen = models.choose(line)
    assert (chosen if isinstance(chosen, str) else chosen[0]) == expected


def test_nothing_is_known_without_a_name_and_a_worker() -> None:
    models = ModelChoice(None)
    assert not models.known
    models.update(fleet("m"), {})
    assert models.known
    assert ModelChoice("m").known


@pytest.mark.parametrize(
    ("live", "pinned", "queue"),
    [
        pytest.param(("m", "m", "n@e"), {}, "bakehouse.q.m@d", id="by name, of the only build"),
        pytest.param(("m", "m@e"), {}, "bakehouse.q.m", id="by name, of two builds"),
        pytest.param((), {}, "bakehouse.q.m", id="nobody there"),
        pytest.param(("*",), {}, "bakehouse.q.*@d", id="any name"),
        pytest.param(("*", "m@e"), {}, "bakehouse.q.m@e", id="its name goes before any name"),
        pytest.param(("m", "m@e"), {"m": "d"}, "bakehouse.q.m@d", id="pinned"),
        pytest.param(("m", "m@e"), {"m": ""}, "bakehouse.q.m", id="used before, any build"),
        pytest.param(("m",), {"m": ""}, "bakehouse.q.m@d", id="used before, any build, and there is one"),
        pytest.param(("*",), {"*": "d"}, "bakehouse.q.*@d", id="any name, pinned"),
        pytest.param(("*",), {"m": "d"}, "bakehouse.q.m@d", id="pinned by name, now only any name"),
    ],
)
def test_route(live: tuple[str, ...], pinned: dict[str, str], queue: str) -> None:
    assert route("m", fleet(*live), pinned) == queue


def test_capacity_leaves_out_those_that_drain() -> None:
    workers = (Worker("a", ("m",), "d", "ready", 8), Worker("b", ("m",), "d", "draining", 8))
    assert Fleet(workers).capacity() == 8
    both = Fleet((*workers, Worker("c", ("n", "*"), "d", "starting", 4)))
    assert [both.capacity(model) for model in ("m", "n", "x")] == [8, 4, 4]
    assert Fleet(workers).queues() == {"bakehouse.q.m", "bakehouse.q.m@d"}


@pytest.mark.parametrize(
    ("failed", "fail_above", "expected"), [(0, 0.0, 0), (1, 0.0, 1), (5, 0.05, 0), (6, 0.05, 1), (100, 1.0, 0)]
)
def test_exit_code(failed: int, fail_above: float, expected: int) -> None:
    assert exit_code_of(Counts(total=100, done=100, failed=failed), fail_above=fail_above) == expected


def test_status_in_openai_words() -> None:
    assert status_of("open", Counts()) == "in_progress"
    assert status_of("done", Counts(total=0)) == "completed"
    assert status_of("done", Counts(total=2, done=2, failures={"invalid_json": 2})) == "failed"
    assert status_of("done", Counts(total=2, done=2, failures={"invalid_json": 1})) == "completed"
    assert status_of("done", Counts(total=2, done=2, failures={"timeout": 2})) == "completed"
