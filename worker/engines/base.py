"""What a worker asks of an engine: an ASGI application behind one call, `await post(url, body) -> Answer`.

A line meets the engine once per attempt: `runner` posts the request's url and JSON body, the engine answers a status
and a body, exactly as `vllm serve` would. Everything in flight shares the engine's continuous batching.
"""

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol


class Answer(NamedTuple):
    """One response: HTTP status and the JSON body as the engine's bytes (UTF-8; not yet checked by us)."""

    status: int
    body: bytes


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What is known once an engine is up; constant for the engine's life."""

    name: str
    """`vllm <version>` or `sim <profile>`: `meta.engine` of every result."""
    served_models: tuple[str, ...]
    """Names a request's `model` may carry. `("*",)`: any (the simulated engine without a name)."""
    digest: str
    """Hex digest over revision, dtype, quantisation, chat template; the same for one model: `meta.model_digest`."""
    revision: str | None
    """The model's revision (commit hash or content hash): `meta.model_revision`."""
    concurrency: int
    """Requests the engine really runs at once: `max_num_seqs`, or what its KV cache holds."""
    dtype: str | None = None
    """The type of numbers it computes in."""
    max_model_len_tokens: int | None = None
    kv_cache_tokens: int | None = None
    start_phases_s: dict[str, float] = field(default_factory=dict)
    """Start-up by phase (import, engine, application), in seconds."""


class Engine(Protocol):
    """One warm engine. All coroutines run in one event loop, made in a thread that lives as long as the worker."""

    async def start(self) -> EngineFacts:
        """Load the model and be ready.

        Raises `EngineStartError`, whose `permanent` says that trying again can never succeed.
        """
        ...

    async def post(self, url: str, body: bytes) -> Answer:
        """Answer one call. Cancelling the task stops the request inside the engine before the cancellation returns.

        Raises `EngineDeadError` when the engine is gone; then nothing in flight has an answer.
        """
        ...

    def unfinished(self) -> int:
        """Requests inside the engine now, running or waiting."""
        ...

    def steps(self) -> int:
        """A counter that moves whenever the engine makes progress; still while it is hung."""
        ...

    def preemptions(self) -> int:
        """Requests that had to give their place in the KV cache back and begin anew, so far; 0 where nobody counts."""
        ...

    async def check_health(self) -> None:
        """Raises `EngineDeadError` when the engine is gone."""
        ...

    async def stop(self) -> None:
        """End the engine and its processes; what is in flight is aborted."""
        ...
