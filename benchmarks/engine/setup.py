"""What both sides are started with: models, flags, how many requests an engine runs at once."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.report import cpus
from tests.models import tiny_model
from tests.processes import SMALL_MODEL, environment
from worker.engines.vllm_env import engine_environment

GENERATOR, EMBEDDER = "small", "small-embedder"
"""Served names. The second is the same folder, put up as a model that embeds."""
POOLING = ("--runner", "pooling", "--convert", "embed")


@dataclass(frozen=True)
class Setup:
    """The same for the fleet and the bare engine."""

    model: Path
    concurrency: int

    @classmethod
    def full(cls) -> "Setup":
        """What figures are made with."""
        return cls(SMALL_MODEL, 64)

    @classmethod
    def quick(cls) -> "Setup":
        """A model of noise and few places: shows that the benchmark runs."""
        return cls(tiny_model(), 8)

    @property
    def kept(self) -> int:
        """Requests that a worker keeps in flight, and the semaphore."""
        return self.concurrency * 5 // 4

    def flags(self, name: str) -> list[str]:
        """vLLM's flags for the engine served as `name`."""
        sizes = ["--max-model-len", "2048", "--kv-cache-memory-bytes", "1G", "--max-num-seqs", str(self.concurrency)]
        return [*sizes, "--enforce-eager", *(POOLING if name == EMBEDDER else ())]

    def variables(self) -> Mapping[str, str]:
        """The environment of a bare engine: what a worker's supervisor would give it."""
        return {**environment(), **engine_environment(environment(), accelerator=False, cores=cpus(), workers=2)}
