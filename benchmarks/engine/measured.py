"""One run of one side: how long it took, what it made, and where its beginning and its end went."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple


class Edges(NamedTuple):
    """Of the fleet's clock, in seconds."""

    first_s: float
    """From the first request fed to the first in the engine."""
    full_s: float | None
    """From the first request fed to a full engine; None: it never was."""
    settled_s: float
    """From the engine's last answer to the last line in the ordered file."""
    outside_s: float
    """Before the first request was fed, and after the last line: the collector's own start and end."""

    @property
    def lost_s(self) -> float:
        """How long the engine had nothing to do."""
        return self.first_s + self.settled_s + self.outside_s


@dataclass(frozen=True)
class Measured:
    """What is known of a run."""

    seconds: float
    tokens: int
    """Output tokens."""
    steps: int
    """Of the engine that generates."""
    tail_s: float | None
    """From when fewer requests were left than it runs at once to its last answer; None where it does not tell."""
    cpu_s: dict[str, float]
    edges: Edges | None = None

    @property
    def rate(self) -> float:
        """Output tokens a second."""
        return self.tokens / self.seconds

    @property
    def lost_s(self) -> float:
        """Seconds in which the engine is known to have had nothing to do."""
        return 0.0 if self.edges is None else self.edges.lost_s

    @property
    def step_s(self) -> float:
        """Seconds a step."""
        return (self.seconds - self.lost_s) / max(1, self.steps)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        made = {**asdict(self), "edges": None if self.edges is None else self.edges._asdict()}
        return {name: _rounded(figure) for name, figure in made.items()}


def tail_s(ended_s: Sequence[float], *, concurrency: int) -> float | None:
    """What is left of a run once fewer than `concurrency` answers are missing; `ended_s`: when each was there."""
    if len(ended_s) <= concurrency:
        return None
    in_order = sorted(ended_s)
    return in_order[-1] - in_order[-concurrency - 1]


def _rounded(figure: Any) -> Any:
    if isinstance(figure, dict):
        return {name: _rounded(part) for name, part in figure.items()}
    return round(figure, 3) if isinstance(figure, float) else figure
