"""Patience: what is waited for is said within 10 s and every minute, and given up in the end."""

import pytest

from common.errors import StoppedError
from producer.patience import Patience


def watch(reasons: dict[int, str | None], *, until_s: int, give_up_after_s: float = 0) -> list[tuple[str, float]]:
    """What is said when the reason changes at the given seconds, looked at once a second."""
    said: list[tuple[str, float]] = []
    patience = Patience(give_up_after_s=give_up_after_s, say=lambda *what: said.append(what), now_s=0.0)
    reason = None
    for second in range(until_s):
        reason = reasons.get(second, reason)
        patience.wait_for(reason, now_s=float(second))
    return said


def test_it_is_said_within_ten_seconds_and_every_minute() -> None:
    assert watch({10: "no worker"}, until_s=150) == [("no worker", 5.0), ("no worker", 65.0), ("no worker", 125.0)]


def test_a_short_wait_is_not_worth_a_word() -> None:
    assert watch({10: "no worker", 14: None}, until_s=150) == []


def test_a_new_wait_is_said_anew() -> None:
    said = watch({0: "a", 20: None, 30: "b"}, until_s=40)
    assert said == [("a", 5.0), ("b", 5.0)]


def test_it_gives_up_after_so_long_without_progress() -> None:
    with pytest.raises(StoppedError, match="no worker"):
        watch({0: "no worker"}, until_s=61, give_up_after_s=60)
    watch({0: "no worker"}, until_s=60, give_up_after_s=60)
    watch({0: "no worker"}, until_s=10_000, give_up_after_s=0)


def test_progress_starts_the_patience_anew() -> None:
    patience = Patience(give_up_after_s=60, say=lambda *_: None, now_s=0.0)
    patience.progress(now_s=59.0)
    patience.wait_for("x", now_s=118.9)
    with pytest.raises(StoppedError):
        patience.wait_for("x", now_s=119.0)


def test_who_stood_still_did_not_wait() -> None:
    patience = Patience(give_up_after_s=60.0, say=lambda *_: None, now_s=0.0, blind_s=12.0)
    for now_s in (10.0, 20.0, 30.0, 5000.0, 5010.0):
        patience.wait_for("x", now_s=now_s)
    with pytest.raises(StoppedError):
        patience.wait_for("x", now_s=5018.0)
