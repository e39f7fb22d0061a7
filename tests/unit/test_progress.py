"""What a running job shows: pace, the lines of a log, the summary."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from producer import progress
from producer.counts import Counts
from producer.progress import Lines, Pacer, describe, describe_duration, make_show
from producer.summary import Summary, print_summary
from tests.waiting import wait_until


def test_pace_is_that_of_the_last_half_minute() -> None:
    pacer = Pacer()
    pacer.pace(Counts(total=1000, done=400), now_s=0)  # a resumed job does not look fast
    assert pacer.pace(Counts(total=1000, done=500, completion_tokens=50), now_s=10) == (10.0, 5.0, 50.0)
    pacer.pace(Counts(total=1000, done=500, completion_tokens=50), now_s=20)
    stalled = pacer.pace(Counts(total=1000, done=500, completion_tokens=50), now_s=45)
    assert stalled == (0.0, 0.0, None)


def test_no_end_is_known_while_the_input_is_read() -> None:
    pacer = Pacer()
    pacer.pace(Counts(done=0), now_s=0)
    assert pacer.pace(Counts(done=10), now_s=1).left_s is None


def test_one_line_says_all() -> None:
    counts = Counts(total=10_000, done=1_200, failed=3)
    line = describe(counts, progress.Pace(53.1, 9_120, 166))
    assert line == "1,200 of 10,000 done, 3 failed, 53.1 requests/s, 9,120 tokens/s, 2 min 46 s left"


@pytest.mark.parametrize(
    ("seconds", "text"), [(9.26, "9.3 s"), (59.7, "1 min 0 s"), (166, "2 min 46 s"), (11_130, "3 h 5 min")]
)
def test_durations(seconds: float, text: str) -> None:
    assert describe_duration(seconds) == text


def test_lines_come_without_any_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "FIRST_LINE_S", 0.01)
    output = io.StringIO()
    with Lines(Console(file=output, width=200)) as lines:
        lines.wait("no live worker serves smollm2")
        wait_until(output.getvalue, timeout_s=5, description="the first line")
    assert output.getvalue() == "no live worker serves smollm2\n"


def test_a_wait_that_begins_later_is_said_soon_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "REASON_S", 0.05)
    monkeypatch.setattr(progress, "TURN_S", 0.01)
    output = io.StringIO()
    with Lines(Console(file=output, width=200)) as lines:
        for seconds in (1, 2):
            lines.wait(f"the local worker starts: {seconds} s")
        wait_until(output.getvalue, timeout_s=5, description="what is waited for")
        lines.wait("Redis does not answer: connection refused")
        wait_until(lambda: "refused" in output.getvalue(), timeout_s=5, description="what is waited for now")
        lines.wait(None)
    assert output.getvalue().splitlines() == [
        "the local worker starts: 2 s",
        "Redis does not answer: connection refused",
    ]


def test_a_bar_only_on_a_terminal() -> None:
    assert isinstance(make_show(Console(file=io.StringIO())), Lines)
    terminal = io.StringIO()
    with make_show(Console(file=terminal, force_terminal=True, width=200)) as bar:
        bar.update(Counts(total=4, done=3, failed=1))
        wait_until(lambda: "3/4, 1 failed" in terminal.getvalue(), timeout_s=5, description="the figures")
        bar.wait("no live worker serves m")
        bar.update(Counts(total=4, done=3, failed=1))
    assert "no live worker serves m" in terminal.getvalue().rpartition("\r")[2]


def test_summary_lists_each_kind_of_failure() -> None:
    counts = Counts(
        total=5, fed=5, done=5, succeeded=3, failed=2, blank=1, prompt_tokens=7, completion_tokens=1_234,
        failures={"timeout": 1, "invalid_json": 1}, retried=4,
    )  # fmt: skip
    summary = Summary("j1", "completed", 1, "out.jsonl", counts, 12.0)
    output = io.StringIO()
    print_summary(summary, Console(file=output, width=200))
    shown = {
        line.split("  ")[0].strip() or line.split()[0]: line.split()[-1] for line in output.getvalue().splitlines()
    }
    assert "5 and 1 blank lines" in output.getvalue()
    assert "7 in, 1,234 out" in output.getvalue()
    assert shown["invalid_json"] == shown["timeout"] == "1"
    assert "4 retried" in output.getvalue()
    assert summary.to_json()["failures"] == {"timeout": 1, "invalid_json": 1}
    assert replace(summary, elapsed_s=None).to_json()["elapsed_s"] is None
