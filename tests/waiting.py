"""Waiting in tests: on a predicate, never on a fixed time."""

import time
from collections.abc import Callable


def wait_until(predicate: Callable[[], object], *, timeout_s: float, description: str) -> None:
    """Block until `predicate()` is true; raises AssertionError naming `description` after `timeout_s` seconds."""
    deadline = time.monotonic() + timeout_s
    while not predicate():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s:g} s: {description}")
        time.sleep(0.02)
