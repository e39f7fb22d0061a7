"""The look-ahead: lines held back until a block of them is at hand, and then let go in the order of work.

Between intake and planner on a line's way. Blocks follow one another, so no line waits longer than its block, and
results come at most a block and the window out of order. With `input` nothing is held back.
"""

from typing import NamedTuple, cast

from pydantic_core import from_json, to_json

from common.settings import Order
from producer.estimates import TASK_CHARACTERS, Estimates, Task
from producer.line_rules import answer_limit
from producer.reader import InputLine
from producer.work_order import Work, arrange

MOST_ROWS = 4096
"""Half the window: while one half runs, the other is arranged."""
MOST_BYTES = 64 * 1024 * 1024
"""A quarter of what the window may hold in Redis."""
PROMPT_CHARACTERS = 1024
"""So much of a prompt tells what it shares with others: some 250 tokens."""


class _Held(NamedTuple):
    """A line that is held back."""

    seq: int
    line: InputLine
    prompt: str
    limit: int
    """Of its answer; 0 where nothing is generated."""

    @property
    def task(self) -> Task:
        """What it is one of."""
        return Task(self.line.model, self.line.url, self.prompt[:TASK_CHARACTERS])


class LookAhead:
    """One job's lines that wait to be arranged."""

    def __init__(self, order: Order, estimates: Estimates) -> None:
        self._order = order
        self._estimates = estimates
        self._held: list[_Held] = []
        self._bytes = 0

    def rows(self, room: int, *, most: int) -> int:
        """How many lines are to be read ahead, where `room` of `most` may be fed now."""
        return room if self._order == "input" else min(MOST_ROWS, most)

    def is_full(self, rows: int) -> bool:
        """Whether a block of `rows` lines is at hand, or one of as many bytes as may be held."""
        return bool(self._held) and (len(self._held) >= rows or self._bytes >= MOST_BYTES)

    def add(self, line: InputLine, *, seq: int) -> list[InputLine]:
        """Take one more line; returns those that go on at once."""
        if self._order == "input":
            return [line]
        body = from_json(line.body)
        self._held.append(_Held(seq, line, beginning_of(body), answer_limit(line.url, body)))
        self._bytes += len(line.body) + len(line.original or b"")
        return []

    def let_go(self, *, places: int | None) -> list[InputLine]:
        """All that is held, in the order of work. `places`: see `arrange`."""
        held, self._held, self._bytes = self._held, [], 0
        for each in held:
            self._estimates.expect(each.seq, each.task, each.limit)
        works = [Work(each.line.model, each.line.url, each.prompt, self._tokens(each)) for each in held]
        return [held[at].line for at in arrange(works, order=self._order, places=places)]

    def _tokens(self, each: _Held) -> float:
        prompt_tokens = each.line.tokens - each.limit
        return prompt_tokens + self._estimates.answer_tokens(each.task, each.limit)


def beginning_of(body: dict[str, object]) -> str:
    """How the prompt of a request begins; empty where it has none that could be shared."""
    messages = body.get("messages")
    if isinstance(messages, list):
        return "\n".join(_message(cast(dict[str, object], one)) for one in messages[:4])[:PROMPT_CHARACTERS]
    return _text(next((body[name] for name in ("prompt", "input") if name in body), ""))


def _message(message: dict[str, object]) -> str:
    return f"{message.get('role')}\n{_text(message.get('content'))}"


def _text(content: object) -> str:
    text = content if isinstance(content, str) else to_json(content).decode()
    return text[:PROMPT_CHARACTERS]
