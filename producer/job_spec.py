"""`job.json`: what a job is, frozen at its creation, and what makes two commands ask for the same job."""

import re
import secrets
import socket
from collections.abc import Iterable
from datetime import datetime
from os.path import abspath
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from common.errors import RefusedError
from common.settings import Order, Priority, Settings
from common.wire import WIRE_VERSION, is_job_id

_IDENTITY = (
    "input",
    "output",
    "model",
    "worker",
    "request_timeout_s",
    "max_retries",
    "include_request",
    "mixed",
    "follow",
)
"""Fields that make the same job. Knobs that change only its pace (sizes, linger, priority, caps) and tags do not."""
_TAG_KEY = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_TAG_CHARACTERS = 256


class EmbeddedWorker(BaseModel):
    """The worker that `producer run` brings along: which engine, which model."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    engine: Literal["vllm", "sim"] = "vllm"
    model: str | None = None
    """Path or name; None only with the simulated engine."""
    served_model_name: str | None = None
    workers: int = 1
    """How many, where they have no GPU."""
    tensor_parallel_size: int = 1
    gpus: str | None = None
    sim_profile: str | None = None
    sim_seconds: float | None = None
    sim_places: int | None = None
    sim_patterns: tuple[str, ...] = ()
    vllm_flags: tuple[str, ...] = ()


class JobSpec(BaseModel):
    """One job. `job`, `created_at`, `host`, `spooled` and the fingerprint are filled in when its directory is made."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    v: int = WIRE_VERSION
    job: str = ""
    created_at: str = ""
    """UTC, ISO 8601."""
    host: str = ""
    input: str
    """Absolute path, or `-`."""
    output: str | None
    """Absolute path of the ordered file; None: `output/results.jsonl` in the job directory."""
    model: str | None
    redis: Literal["embedded", "given"]
    """Which kind of server; never its URL, which may hold a password."""
    worker: EmbeddedWorker | None = None

    batch_size: int
    batch_tokens: int
    batch_growth: float = 4.0
    batch_timeout_s: float
    order: Order = "input"
    request_timeout_s: float
    max_retries: int
    max_line_bytes: int
    include_request: bool
    mixed: bool = False
    """Whether workers with different builds of a model may share it."""
    priority: Priority
    max_concurrency: int | None
    fail_above: float
    tags: dict[str, str] = {}
    """The user's own words about the job, as first given."""
    pause_above: float

    follow: bool = False
    """Whether a file is read as it grows."""
    until_idle_s: float = 0.0
    """A growing input ends when nothing has come for so long; 0: not by that."""

    spooled: bool = False
    """Whether it is read from a copy."""
    streamed: bool = False
    """Whether the copy grows while the job runs: of standard input, and of pipes."""
    input_size: int = 0
    input_mtime_ns: int = 0
    input_block_hashes: tuple[str, ...] = ()

    @classmethod
    def from_settings(
        cls,
        settings: Settings,
        *,
        input: str,
        output: str | None,
        model: str | None,
        redis: Literal["embedded", "given"],
        worker: EmbeddedWorker | None = None,
        include_request: bool = False,
        mixed: bool = False,
        follow: bool = False,
        tags: dict[str, str] | None = None,
        job: str = "",
    ) -> Self:
        """The spec of a command; paths are made absolute, an empty `job` gets its id at creation."""
        knobs = {name: value for name, value in settings.model_dump().items() if name in cls.model_fields}
        fixed: dict[str, Any] = {
            "job": job and check_job_id(job),
            "input": input if input == "-" else abspath(input),
            "output": output and abspath(output),
            "model": model,
            "redis": redis,
            "worker": worker,
            "include_request": include_request,
            "mixed": mixed,
            "follow": follow,
            "tags": tags or {},
        }
        return cls(**{**knobs, **fixed})

    def differs_from(self, other: "JobSpec") -> list[str]:
        """Names of the fields in which two specs are different jobs; empty: the same job."""
        return [name for name in _IDENTITY if getattr(self, name) != getattr(other, name)]

    def named(self, now: datetime) -> Self:
        """This spec with host, time and, unless it was given, an id like `20261130-141503-3f9a2c`."""
        job = self.job or f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
        return self.model_copy(update={"job": job, "created_at": now.isoformat(), "host": socket.gethostname()})


def check_job_id(job: str) -> str:
    """`job`, if it can be a folder's name and stand in a Redis key. Raises `RefusedError`."""
    if not is_job_id(job):
        raise RefusedError(
            "a job id is 1 to 64 letters, digits, - and _, a letter or digit first", where=job[:80], do="choose another"
        )
    return job


def parse_tags(given: Iterable[str]) -> dict[str, str]:
    """The tags in `K=V` each, in their order. Raises `RefusedError`: no such pair, or a key given twice."""
    tags: dict[str, str] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not _TAG_KEY.fullmatch(key):
            raise RefusedError(
                "a tag is KEY=VALUE, its key 1 to 64 letters, digits, _, . and -",
                where=repr(text[:80]),
                do="as in team=search",
            )
        if len(value) > _TAG_CHARACTERS or not value.isprintable():
            raise RefusedError(f"a tag's value is at most {_TAG_CHARACTERS} printable characters", where=key)
        if key in tags:
            raise RefusedError("this tag is given twice", where=key, do="give it once")
        tags[key] = value
    return tags


def read_spec(path: Path) -> JobSpec:
    """The spec in the file at `path`. Raises `RefusedError`: missing, unreadable, or of another version."""
    try:
        spec = JobSpec.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise RefusedError(f"no job can be read here: {type(error).__name__}", where=str(path)) from error
    if spec.v != WIRE_VERSION:
        raise RefusedError(f"a job of version {spec.v}; this is version {WIRE_VERSION}", where=str(path))
    return spec
