"""What the supervisor hands to each worker process it starts: one JSON document in the environment.

Set by `worker start`, read once by `python -P -m worker.app`. Settings travel beside it in their own variables.
"""

import os
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field

VARIABLE = "BAKEHOUSE_WORKER_OPTIONS"

EXIT_DRAINED = 0
EXIT_STOPPED = 3
"""Redis gone for good, or the watchdog: blames nobody."""
EXIT_ABORTED = 130
"""A second SIGINT: what ran was stopped and handed back."""
EXIT_DIED = 70
"""An engine or uncaught error, or a hung step: the certificate says `self`."""
EXIT_OUT_OF_MEMORY = 72
"""The engine died for want of memory: the certificate says `self`, and the next life begins with a lower target."""
EXIT_ENGINE_KILLED = 71
"""The engine child was ended by SIGKILL or SIGTERM: the certificate says `outside`."""
EXIT_CANNOT_START = 78
"""The engine can never start so; not repeated."""
EXIT_START_FAILED = 75
"""The engine did not start this time; repeated with growing pauses."""


class SimOptions(BaseModel):
    """Knobs of the simulated engine."""

    model_config = ConfigDict(frozen=True)

    profile: Literal["token", "heavy", "zero", "bakery"] = "token"
    seconds: float = Field(0.01, ge=0, description="Seconds a step (`token`, `heavy`); other profiles ignore it.")
    places: int = Field(64, ge=1, description="Requests it runs at once; B of `bakery`.")
    patterns: tuple[str, ...] = Field((), description="ACTION=TEXT each.")
    revision: str | None = Field(None, description="Which build it says that it is.")


class WorkerOptions(BaseModel):
    """One worker process: which engine, which model, which life."""

    model_config = ConfigDict(frozen=True)

    engine: Literal["vllm", "sim"] = "vllm"
    model: str | None = None
    """A folder or a hub name; None only with the simulated engine."""
    served_model_name: str | None = None
    tensor_parallel_size: int = 1
    vllm_flags: tuple[str, ...] = ()
    sim: SimOptions = SimOptions()
    gpu: str = "cpu"
    """Label of the GPU or group (`0`, `0+1`, `cpu0`) in names and metrics."""
    incarnation: str = "unsupervised"
    """`<host>-<gpu>-<8 hex>`."""
    target_share: float = 1.0
    """Of the full target, to begin with: less after a death by want of memory."""
    restarts: dict[str, int] = {}
    """How often its place was started again so far, by the cause of the death before."""
    spawned_at: float | None = None
    """This host's monotonic clock when the process was started."""

    def to_environment(self) -> dict[str, str]:
        """The variable that carries these options."""
        return {VARIABLE: self.model_dump_json()}

    @classmethod
    def from_environment(cls) -> Self:
        """The options this process was started with; defaults where it was started by hand."""
        return cls.model_validate_json(os.environ.get(VARIABLE, "{}"))
