"""How long a worker took from its start to its first token, by phase: for its log, its heartbeat and its supervisor.

Beside a line's way. `process` is the interpreter, our own modules and Redis; `checks` looks at the model and its
digest; `import`, `engine` and `application` are the engine's own; `consumer` is Celery's. After a `wait` for
work, `token` goes from the first request to the engine's first step.
"""

import asyncio
import json
import time
from collections.abc import Callable

from worker.engines.base import Engine, EngineFacts

TOKEN = "token"
_LOOK_S = 0.01


class StartPhases:
    """One life's phases in seconds, in their order."""

    def __init__(self, *, spawned_at: float | None) -> None:
        """`spawned_at`: this host's monotonic clock when the process was started; None: now."""
        self.began_at = time.monotonic() if spawned_at is None else spawned_at
        self._mark = self.began_at
        self.seconds: dict[str, float] = {}

    @property
    def total_s(self) -> float:
        """From the start until the last phase ended."""
        return self._mark - self.began_at

    def end(self, phase: str) -> None:
        """`phase` ends now."""
        self._mark, began = time.monotonic(), self._mark
        self.seconds[phase] = self._mark - began

    def engine_up(self, facts: EngineFacts) -> None:
        """The engine is up now; what it does not name itself is `checks`."""
        self.end("checks")
        self.seconds["checks"] = max(0.0, self.seconds["checks"] - sum(facts.start_phases_s.values()))
        self.seconds |= facts.start_phases_s

    def first_token(self, took_s: float) -> None:
        """The engine has made its first step now, `took_s` after its first request."""
        self.end("wait")
        self.seconds["wait"] = max(0.0, self.seconds["wait"] - took_s)
        self.seconds[TOKEN] = took_s

    def rounded(self) -> dict[str, float]:
        """For logs."""
        return {phase: round(duration_s, 2) for phase, duration_s in self.seconds.items()}

    def to_json(self) -> str:
        """For the heartbeat."""
        return json.dumps(self.rounded())


class FirstToken:
    """Watches the engine from its first request until its first step. Everything happens in the engine's loop."""

    def __init__(self, engine: Engine, *, tell: Callable[[float], object]) -> None:
        """`tell` is called once, with the seconds between the two."""
        self._engine = engine
        self._tell = tell
        self._asked_at: float | None = None
        self._steps = 0

    def asked(self) -> None:
        """A request is about to enter the engine; only the first one counts."""
        if self._asked_at is None:
            self._asked_at, self._steps = time.monotonic(), self._engine.steps()
            self._look_soon()

    def _look_soon(self) -> None:
        asyncio.get_running_loop().call_later(_LOOK_S, self._look)

    def _look(self) -> None:
        if self._engine.steps() == self._steps or self._asked_at is None:
            self._look_soon()
        else:
            self._tell(time.monotonic() - self._asked_at)


def describe(written: str | bytes) -> list[str]:
    """What `StartPhases.to_json` wrote: `ready after 14.1 s: process 0.9, ...`, and of the token once there is one."""
    phases: dict[str, float] = json.loads(written)
    token_s = phases.pop(TOKEN, None)
    wait_s = phases.pop("wait", 0.0)
    if not phases:
        return []
    up_s = sum(phases.values())
    said = [f"ready after {up_s:.1f} s: " + ", ".join(f"{phase} {took_s:.1f}" for phase, took_s in phases.items())]
    if token_s is not None:
        total_s = up_s + wait_s + token_s
        said.append(f"first token {token_s:.2f} s after its first request, {total_s:.1f} s after its start")
    return said
