"""What a job has come to so far, in figures: for progress, summary and status; kept in the journal with the results."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Self

import orjson

from common.wire import Result


@dataclass
class Counts:
    """Figures of one job. They are committed together with the rows they count, so they always equal the file."""

    total: int | None = None
    """Requests in the input (non-blank lines); None while it is still read."""
    fed: int = 0
    """Requests read and journaled, those refused by the reader included."""
    done: int = 0
    """Requests with a result."""
    succeeded: int = 0
    failed: int = 0
    blank: int = 0
    retried: int = 0
    """Attempts beyond the first, of all results."""
    redelivered: int = 0
    """Micro-batches whose hold was lost."""
    duplicates: int = 0
    """Results that came again and were dropped."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    late: int = 0
    """Results that came after the job's deadline."""
    gpu_s: float = 0.0
    """Seconds that GPUs worked for it."""
    failures: dict[str, int] = field(default_factory=dict)
    """`ErrorKind` value -> results."""

    def add(self, results: Iterable[Result], *, late: bool = False) -> None:
        """Count `results`, each journaled for the first time; `late`: after the deadline."""
        outcomes: Counter[tuple[int, str]] = Counter()
        for _seq, _round, status, code, attempts, prompt_tokens, completion_tokens, _line in results:
            outcomes[status, code] += 1
            self.prompt_tokens += prompt_tokens
            self.completion_tokens += completion_tokens
            if attempts > 1:
                self.retried += attempts - 1
        for (status, code), number in outcomes.items():
            self.late += number if late else 0
            self.add_rows(status, code, number)

    def add_rows(self, status: int, code: str, number: int) -> None:
        """Count `number` results of one outcome; below 0: they are results no more."""
        self.done += number
        if status == 200:
            self.succeeded += number
            return
        self.failed += number
        left = self.failures.get(code, 0) + number
        self.failures |= {code: left}
        if not left:
            del self.failures[code]

    @property
    def left(self) -> int:
        """Requests of an input read to its end that have no result."""
        return (self.total or 0) - self.done

    @property
    def finished(self) -> bool:
        """Whether every request of the whole input has a result."""
        return self.total is not None and self.done >= self.total

    def copy(self) -> Self:
        """A snapshot that later counting leaves alone."""
        return type(self)(**asdict(self))

    def to_json(self) -> bytes:
        """As it stands in the journal."""
        return orjson.dumps(self)

    @classmethod
    def from_json(cls, text: bytes | str) -> Self:
        """The counts that `to_json` wrote."""
        return cls(**orjson.loads(text))
