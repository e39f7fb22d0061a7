"""How the simulated engine spends time: profiles, and what a prompt pattern makes it do.

- `token`: continuous batching. A step takes `seconds` (0.01) and gives one token to each running request;
  who has all its tokens leaves at once, and the next goes in. 8 places.
- `heavy`: the same, and answers end by themselves after a heavy-tailed length. 8 places.
- `zero`: no cost at all, so that what is measured is everything else. 256 places.
- `bakery`: static batches. A batch of n takes `seconds` (1) times 0.2 + 0.1 n, whatever the lengths; all of it
  ends together, and only then does the next go in. 4 places.

A token is a word: what stands between two spaces.
"""

import hashlib
import math
import random
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from common.errors import RefusedError

_HEAVY_MEDIAN_TOKENS = 32
_HEAVY_SIGMA = 1.0
"""Lognormal lengths with sigma 1: the mean is 1.65 times the median, one in a hundred is 10 times it."""


class SimProfile(StrEnum):
    """Named timing profiles."""

    TOKEN = "token"
    HEAVY = "heavy"
    ZERO = "zero"
    BAKERY = "bakery"

    @property
    def default_seconds(self) -> float:
        """What `seconds` means when none are given."""
        return {"token": 0.01, "heavy": 0.01, "zero": 0.0, "bakery": 1.0}[self.value]

    @property
    def default_places(self) -> int:
        """Requests that run at once when no number is given."""
        return {"token": 8, "heavy": 8, "zero": 256, "bakery": 4}[self.value]

    def step_s(self, seconds: float, running: int) -> float:
        """How long one step with `running` requests takes."""
        return seconds * (0.2 + 0.1 * running) if self is SimProfile.BAKERY else seconds

    def steps(self, tokens: int) -> int:
        """How many steps an answer of `tokens` tokens takes."""
        return 1 if self is SimProfile.BAKERY else max(1, tokens)

    def length(self, prompt: str, limit: int | None, seed: int) -> int:
        """Tokens of the answer to `prompt`: `limit`, or as many as the prompt has.

        `heavy` draws from `seed` and the prompt alone, so the same line has the same length in any worker.
        """
        if self is not SimProfile.HEAVY:
            return prompt.count(" ") + 1 if limit is None else limit
        draw = random.Random(hashlib.sha256(f"{seed}:{prompt}".encode(errors="surrogatepass")).digest())
        drawn = math.ceil(_HEAVY_MEDIAN_TOKENS * draw.lognormvariate(0.0, _HEAVY_SIGMA))
        return drawn if limit is None else min(drawn, limit)


class SimAction(StrEnum):
    """What a prompt can make the engine do."""

    ABORT = "abort"
    """Abort its own process, as a fault in native code would (SIGABRT)."""
    KILL = "kill"
    """Kill its own process (SIGKILL), as the kernel would when memory runs out."""
    HANG = "hang"
    """Make no step any more, for nobody; the process lives."""
    FAIL_ONCE = "fail-once"
    """Answer 503 the first time in this engine's life, then as usual."""
    FAIL = "fail"
    """Answer 500."""
    INF_LOGPROBS = "inf-logprobs"
    """Answer with `-Infinity` among the logprobs, which is no JSON."""


@dataclass(frozen=True, slots=True)
class SimPattern:
    """A request whose last user message contains `text` makes the engine do `action`."""

    action: SimAction
    text: str


def parse_patterns(options: Iterable[str]) -> tuple[SimPattern, ...]:
    """`ACTION=TEXT` options as patterns, in their order. Raises `RefusedError`."""
    patterns = []
    for option in options:
        action, separator, text = option.partition("=")
        if not separator or not text or action not in list(SimAction):
            known = ", ".join(SimAction)
            raise RefusedError(f"--sim-pattern {option}", do=f"write ACTION=TEXT, ACTION one of: {known}")
        patterns.append(SimPattern(SimAction(action), text))
    return tuple(patterns)
