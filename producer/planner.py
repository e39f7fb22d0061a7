"""A run of requests -> micro-batches, in order, one model each. Pure: same lines and sizes in, same micro-batches out.

A line comes here from `reader` and leaves in a micro-batch to `feeder`, which also decides when a part-filled one goes.
"""

from collections.abc import Iterator

from producer.reader import InputLine

_SHARES = 4


class Planner:
    """Gathers requests into micro-batches of at most `size` requests and `tokens` estimated tokens.

    A request above `tokens` travels alone. Within a model, order is kept. `size` may be changed at any time.
    """

    def __init__(self, *, size: int, tokens: int) -> None:
        self.size = size
        self._tokens = tokens
        self._open: dict[str, list[InputLine]] = {}
        self._open_tokens: dict[str, int] = {}

    def add(self, line: InputLine) -> list[list[InputLine]]:
        """Take one more request; returns the micro-batches that are full now (mostly none)."""
        model = line.model
        done: list[list[InputLine]] = []
        waiting = self._open.setdefault(model, [])
        if waiting and self._open_tokens[model] + line.tokens > self._tokens:
            done.extend(self._take(model))
            waiting = self._open.setdefault(model, [])
        waiting.append(line)
        self._open_tokens[model] = self._open_tokens.get(model, 0) + line.tokens
        if len(waiting) >= self.size or self._open_tokens[model] >= self._tokens:
            done.extend(self._take(model))
        return done

    def flush(self) -> list[list[InputLine]]:
        """All that waits, as micro-batches; nothing waits afterwards."""
        return [batch for model in list(self._open) for batch in self._take(model)]

    def waiting(self) -> int:
        """Requests taken and not yet given out."""
        return sum(len(lines) for lines in self._open.values())

    def _take(self, model: str) -> Iterator[list[InputLine]]:
        lines = self._open.pop(model)
        del self._open_tokens[model]
        size = max(1, self.size)
        return (lines[start : start + size] for start in range(0, len(lines), size))


def size_for(remaining: int, capacity: int, default: int, *, workers: int = 1) -> int:
    """Requests a micro-batch while `remaining` are not yet fed to `workers` that run `capacity` at once.

    `default`, or what one worker runs at once where that is less, as long as four fleets' worth remain; below that, in
    proportion, so that a small job and the end of any job are spread over all workers instead of queueing behind one.
    At least 1. Unknown capacity (0): `default`.
    """
    if capacity <= 0:
        return default
    most = min(default, -(-capacity // workers))
    return max(1, min(most, -(-default * remaining // (_SHARES * capacity))))
