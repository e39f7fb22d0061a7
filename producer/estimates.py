"""Estimates of how long answers get: from the limits that requests state, corrected by the answers that have come.

Requests of a task, which begin alike, mostly have the same limit and use much the same share of it. Pure and in memory:
a new collector learns anew. Told of requests and asked by `look_ahead`, told of results by `receiver`.
"""

from collections.abc import Iterable
from typing import NamedTuple

from common.wire import Result

TASK_CHARACTERS = 64
"""Requests for one model and endpoint whose prompts begin with the same ones are one task."""
MOST_TASKS = 4096
"""The oldest is forgotten beyond."""
_MEMORY = 0.9
"""Weight of what was seen before in a task's running mean: the last ten answers count."""


class Task(NamedTuple):
    """A kind of request."""

    model: str
    url: str
    beginning: str = ""
    """Of its prompts; empty: all of the endpoint."""


class Estimates:
    """Which share of its limit an answer takes, by task; where a task is new, as at its endpoint; else the whole."""

    def __init__(self) -> None:
        self._shares: dict[Task, float] = {}
        self._expected: dict[int, tuple[Task, int]] = {}
        """Of requests under way: their task and the limit of their answer."""

    def answer_tokens(self, task: Task, limit: int) -> float:
        """About how long an answer will be."""
        share = self._shares.get(task)
        if share is None:
            share = self._shares.get(_endpoint_of(task), 1.0)
        return share * limit

    def expect(self, seq: int, task: Task, limit: int) -> None:
        """Note a request that is fed."""
        self._expected[seq] = task, limit

    def learn(self, results: Iterable[Result]) -> None:
        """Correct by results that are new."""
        if not self._expected:
            return
        for result in results:
            task, limit = self._expected.pop(result.seq, (None, 0))
            if task is not None and limit and result.status == 200:
                for key in (task, _endpoint_of(task)):
                    self._note(key, result.completion_tokens / limit)

    def _note(self, task: Task, share: float) -> None:
        known = self._shares.get(task, share)
        self._shares[task] = _MEMORY * known + (1 - _MEMORY) * share
        if len(self._shares) > MOST_TASKS:
            del self._shares[next(iter(self._shares))]


def _endpoint_of(task: Task) -> Task:
    return task._replace(beginning="")
