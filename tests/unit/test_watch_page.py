"""The page of `status --watch`: it fits on 80 columns, whatever is in it."""

import io
from datetime import UTC, datetime

import pytest
from rich.console import Console

from producer.fleet import Worker
from producer.outlook import Outlook
from producer.status import COUNTS, JobStatus, Status
from producer.watch_page import MOST_WORKERS, describe_line, make_page

NOW = datetime(2026, 12, 1, 2, 14, 40, tzinfo=UTC)
GOOD = Outlook(
    at="2026-12-01T02:14:38+00:00", results_per_s=53.1, tokens_per_s=9_120.0, left=5_870, unfed=1_770, left_s=114.0,
    bottleneck="engines", why="78 in flight, 80 wanted; add workers", waits_for=None,
    deadline="2026-12-01T07:00:00+00:00", margin_s=17_000.0, workers_needed=None, is_urgent=False, is_at_risk=False,
    redis_share=0.3, events=("02:14:30 hold_expired mb=7",),
)  # fmt: skip


def status(outlook: Outlook | None = GOOD, *, workers: int = 2, **more: object) -> Status:
    """One job of 10,000 requests."""
    counts: dict[str, int | None] = {**dict.fromkeys(COUNTS, 0), "total": 10_000, "fed": 8_230, "done": 4_130}
    fields = {"deadline": "2026-12-01T07:00:00+00:00", "outlook": outlook, "events": GOOD.events, **more}
    job = JobStatus("nightly", "in_progress", None, counts, **fields)  # type: ignore[arg-type]
    live = [
        Worker(f"node-{n}-0-{n:08x}", ("smollm2",), "d", "ready", 40, in_flight=39, tokens_per_s=n, gpu=str(n))
        for n in range(workers)
    ]
    return Status([job], live, "redis://r")


def page(shown: Status) -> list[str]:
    """Its lines on a terminal of 80 columns."""
    output = io.StringIO()
    console = Console(file=output, width=80, force_terminal=True, color_system=None, highlight=False)
    console.print(make_page(shown, shown.jobs[0], now=NOW, gpu_hourly_cost=2.5))
    return output.getvalue().splitlines()


def test_what_it_shows() -> None:
    text = "\n".join(page(status()))
    assert "[################------------------------]  41%  4,130 of 10,000 done" in text
    assert "rate       53.1 results/s, 9,120 tokens/s" in text
    assert "left       1 min 54 s, to " in text
    assert "backlog    5,870 requests, 1,770 of them not fed; Redis 30% full" in text
    assert "limit      engines: 78 in flight, 80 wanted; add workers" in text
    assert "margin 4 h 43 min" in text
    assert "02:14:30 hold_expired mb=7" in text
    assert "39/40" in text


def test_a_coming_miss_names_the_workers() -> None:
    missing = status(Outlook(**{**GOOD.__dict__, "margin_s": -90.0, "workers_needed": 5}))
    assert "LATE by 1 min 30 s, 5 workers would make it" in "\n".join(page(missing))
    assert "LATE by 1 min 30 s, 5 workers would make it" in describe_line(missing.jobs[0], now=NOW)


def test_an_end_that_cannot_be_told_is_a_risk() -> None:
    gone = {"margin_s": None, "left_s": None, "is_at_risk": True, "workers_needed": 3}
    text = "\n".join(page(status(Outlook(**{**GOOD.__dict__, **gone}))))
    assert "AT RISK, no end told, 3 workers would make it" in text
    assert "left       not known yet" in text


def test_a_silent_collector_is_told() -> None:
    silent = status(Outlook(**{**GOOD.__dict__, "at": "2026-12-01T02:00:00+00:00"}))
    assert "said nothing for 14 min 40 s" in "\n".join(page(silent))
    assert "said nothing" not in "\n".join(page(status()))


@pytest.mark.parametrize(
    "shown",
    [
        pytest.param(status(), id="usual"),
        pytest.param(status(None, workers=0), id="nobody"),
        pytest.param(status(workers=100), id="many workers"),
        pytest.param(status(events=("02:14:30 redis_lost error=" + "x\n\x1b[2J\r" * 40,)), id="a wild event"),
        pytest.param(status(failures={f"kind_{n}": 10**6 for n in range(20)}), id="many failures"),
        pytest.param(status(gpu_s=1e9, prompt_tokens=10**12, completion_tokens=10**12, late=10**7), id="large figures"),
    ],
)
def test_it_fits(shown: Status) -> None:
    lines = page(shown)
    assert max(map(len, lines)) <= 80
    assert not any("\x1b[2J" in line for line in lines)
    assert len(lines) <= 40


def test_many_workers_are_told_by_their_number() -> None:
    lines = page(status(workers=MOST_WORKERS + 88))
    assert "node-99-0-" in "\n".join(lines), "the busiest first"
    assert "and 88 more" in lines[-1]
