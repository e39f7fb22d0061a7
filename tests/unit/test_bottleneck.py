"""What holds a job up, by name, over made-up looks."""

import pytest

from producer.bottleneck import LONG_STREAM, Name, Seen, find_bottleneck

WELL = Seen(live=2, ready=2, in_flight=38, target=40, waiting=200, unfed=1_000)


@pytest.mark.parametrize(
    ("seen", "name"),
    [
        pytest.param(WELL, "engines", id="as it should be"),
        pytest.param(WELL._replace(state="paused", redis_full=True), "paused", id="paused before all else"),
        pytest.param(WELL._replace(state="cancelling"), "cancelling", id="cancelled"),
        pytest.param(WELL._replace(redis_full=True), "redis", id="full Redis"),
        pytest.param(WELL._replace(live=0, ready=0), "workers", id="nobody"),
        pytest.param(WELL._replace(ready=0), "workers", id="nobody ready"),
        pytest.param(WELL._replace(stream=LONG_STREAM), "collector", id="results wait"),
        pytest.param(WELL._replace(in_flight=4, waiting=0, unfed=0, awaits_lines=True), "input", id="no lines come"),
        pytest.param(WELL._replace(in_flight=4, waiting=10), "input", id="read too slowly"),
        pytest.param(WELL._replace(in_flight=4, waiting=10, has_room=False), "window", id="window full"),
        pytest.param(WELL._replace(in_flight=4, waiting=10, unfed=0), "tail", id="the last ones"),
        pytest.param(WELL._replace(in_flight=4), "engines", id="work is on its way"),
    ],
)
def test_its_name(seen: Seen, name: Name) -> None:
    assert find_bottleneck(seen).name == name


def test_it_says_what_to_do() -> None:
    assert "start one" in find_bottleneck(Seen()).text
    assert "start or drain" in find_bottleneck(Seen(live=1)).text
    capped = WELL._replace(in_flight=4, has_room=False, is_capped=True)
    assert "max_concurrency" in find_bottleneck(capped).text
    assert "2 more jobs" in find_bottleneck(WELL._replace(other_jobs=2)).text


MANY = Seen(live=99, ready=99, in_flight=9_999, target=9_999, waiting=9_999, unfed=9**9, other_jobs=99)
IDLE = MANY._replace(in_flight=1_000, waiting=1_111)


@pytest.mark.parametrize(
    "seen",
    [
        MANY,
        IDLE,
        IDLE._replace(has_room=False),
        IDLE._replace(has_room=False, is_capped=True),
        IDLE._replace(unfed=0),
        IDLE._replace(waiting=99_999),
        MANY._replace(stream=LONG_STREAM),
        MANY._replace(redis_full=True),
        MANY._replace(ready=0),
    ],
)
def test_it_fits_on_a_line_of_80_columns(seen: Seen) -> None:
    found = find_bottleneck(seen)
    assert len(f"limit      {found.name}: {found.text}") <= 80
