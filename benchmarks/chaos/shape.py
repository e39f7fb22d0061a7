"""What is set up for one run of chaos: how many lines, which engine, which processes carry them."""

from dataclasses import dataclass
from typing import Literal

from tests.processes import SMALL_MODEL, VLLM_FLAGS

Verb = Literal["run", "collect", "enqueue", "embedded"]
Place = Literal["jobs", "output", "data"]
"""Job directory, ordered file, the server's append-only file."""

MODEL = "m"
REAL_ENGINE = (
    *("--model", SMALL_MODEL, "--served-model-name", MODEL, *VLLM_FLAGS),
    *("--max-num-seqs", 1, "--no-enable-prefix-caching"),
)
"""One request at a time: beside others the last bit of a sum can be another, and with it a word, kill or no kill."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """One set-up. Waiting times of the product are its defaults: the redo times depend on them."""

    rows: int = 280
    nodes: tuple[int, ...] = (2, 1)
    """Supervisors, by how many workers each has."""
    step_s: float = 0.04
    """Of the simulated engine: one token for each request that runs."""
    places: int = 8
    batch_size: int = 8
    verbs: tuple[Verb, ...] = ("run", "collect")
    """Which commands carry the job, one of them a run: `run`; `enqueue` and then `collect`; `enqueue` that is struck;
    `run` with its own server and workers."""
    worker_flags: tuple[str, ...] = ()
    job_flags: tuple[str, ...] = ()
    poison: str | None = None
    """What the simulated engine does to itself when it meets one of the poisonous lines: abort or kill."""
    on_small_disk: tuple[Place, ...] = ()
    """What lies on a small disk of its own."""
    is_proxied: bool = False
    """Whether all connections pass a proxy."""
    is_clocked: bool = False
    """Whether server and processes live by a clock that can be set."""
    is_real: bool = False
    """The real engine with the small model."""
