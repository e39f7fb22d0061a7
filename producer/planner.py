"""A run of requests -> micro-batches, in order, one model each. Pure: same lines and sizes in, same micro-batches out.

A line comes here from `reader` and leaves in a micro-batch to `feeder`, which also decides when a part-filled one goes.
"""

from collections.abc import Iterator

from producer.reader import InputLine

_SHARES = 4

_Key = tuple[str, str]
"""Model and endpoint of those that may travel together; no endpoint: any."""


class Planner:
    """Gathers requests into micro-batches of at most `size` requests and `tokens` estimated tokens.

    A request above `tokens` travels alone. Within a model, order is kept. Both may be changed at any time.
    With `by_endpoint` a micro-batch holds one endpoint, too, and order is kept within that.
    """

    def __init__(self, *, size: int, tokens: int, by_endpoint: bool = False) -> None:
        self.size = size
        self.tokens = tokens
        self._by_endpoint = by_endpoint
        self._open: dict[_Key, list[InputLine]] = {}
        self._open_tokens: dict[_Key, int] = {}

    def add(self, line: InputLine) -> list[list[InputLine]]:
        """Take one more request; returns the micro-batches that are full now (mostly none)."""
        key = line.model, line.url if self._by_endpoint else ""
        done: list[list[InputLine]] = []
        waiting = self._open.setdefault(key, [])
        if waiting and self._open_tokens[key] + line.tokens > self.tokens:
            done.extend(self._take(key))
            waiting = self._open.setdefault(key, [])
        waiting.append(line)
        self._open_tokens[key] = self._open_tokens.get(key, 0) + line.tokens
        if len(waiting) >= self.size or self._open_tokens[key] >= self.tokens:
            done.extend(self._take(key))
        return done

    def flush(self) -> Iterator[list[InputLine]]:
        """All that waits, as micro-batches, each of the size that is wanted then; nothing waits afterwards."""
        while self._open:
            yield from self._take(next(iter(self._open)))

    def _take(self, key: _Key) -> Iterator[list[InputLine]]:
        lines = self._open.pop(key)
        del self._open_tokens[key]
        while lines:
            size = max(1, self.size)
            yield lines[:size]
            lines = lines[size:]


def size_for(remaining: int, capacity: int, default: int, *, workers: int = 1) -> int:
    """Requests a micro-batch while `remaining` are not yet fed to `workers` that run `capacity` at once.

    `default`, or what one worker runs at once where that is less, as long as four fleets' worth remain; below that, in
    proportion, so that a small job and the end of any job are spread over all workers instead of queueing behind one.
    At least 1; a lone worker has nobody to share with. Unknown capacity (0): `default`.
    """
    if capacity <= 0:
        return default
    most = min(default, -(-capacity // workers))
    if workers == 1:
        return most
    return max(1, min(most, -(-default * remaining // (_SHARES * capacity))))
