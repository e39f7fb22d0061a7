"""How jobs stand, from any host: what their collectors write in Redis, and on their own host what the journal says."""

from dataclasses import asdict, dataclass, field, replace
from typing import Any, cast

import orjson
import redis

from common import keys
from common.broker import check_server, make_client, redis_url
from common.errors import BakehouseError, StoppedError
from common.log import redact
from common.settings import Settings
from common.wire import job_ids
from producer.counts import Counts
from producer.deadline_file import read_deadline
from producer.embedded import socket_url
from producer.fleet import Worker, read_fleet
from producer.job_directory import JobDirectory
from producer.job_lock import read_holder
from producer.job_spec import check_job_id
from producer.journal_reader import Checkpoint, read_checkpoint
from producer.notice import counts_of
from producer.outcome import status_of
from producer.outlook import Outlook
from producer.recent_events import read_tail
from producer.usage import cost_of

_STATES = {
    "open": "in_progress",
    "rebuilding": "in_progress",
    "paused": "paused",
    "cancelling": "cancelling",
    "sealed": "cancelling",
}
"""`info.state` -> what the user sees: OpenAI's words, and paused; how it ended is in `info.status`."""
COUNTS = ("total", "fed", "done", "failed", "blank", "retried", "duplicates")


@dataclass(frozen=True)
class JobStatus:
    """One job."""

    job: str
    state: str
    reason: str | None
    """Why it is paused."""
    counts: dict[str, int | None]
    """By the names in `COUNTS`; None where it is not known."""
    exit_code: int | None = None
    host: str | None = None
    directory: str | None = None
    output: str | None = None
    collector: str | None = None
    """Who works on it, on this host; None: nobody, or it belongs to another host."""
    tags: dict[str, str] = field(default_factory=dict)
    prompt_tokens: int = 0
    completion_tokens: int = 0
    failures: dict[str, int] = field(default_factory=dict)
    """Error code -> results."""
    late: int = 0
    """Results that came after the deadline."""
    deadline: str | None = None
    """UTC, ISO 8601."""
    gpu_s: float = 0.0
    """Seconds that GPUs worked for it."""
    outlook: Outlook | None = None
    """What its collector expects; None where none is known to work on it."""
    events: tuple[str, ...] = ()
    """The last ones, oldest first."""

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens of its results."""
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True)
class Status:
    """All that is known."""

    jobs: list[JobStatus]
    workers: list[Worker]
    redis: str | None
    """Where it was asked; None: not reached."""

    def to_json(self, *, gpu_hourly_cost: float | None = None) -> dict[str, Any]:
        """The same as one object; `cost` of each job where that of a GPU is given."""
        workers = [worker._asdict() for worker in self.workers]
        jobs = [_flat(job, gpu_hourly_cost) for job in self.jobs]
        return {"jobs": jobs, "workers": workers, "redis": self.redis}


def read_status(settings: Settings, *, job: str | None) -> Status:
    """Every known job, or the one named `job`. On a job's own host its journal, which is the truth, comes first.

    Raises `StoppedError` when `job` is not known, or nothing is known and Redis cannot be reached.
    """
    local = _find_local(settings, job)
    remote: dict[str, dict[str, str]] = {}
    workers: tuple[Worker, ...] = ()
    where = None
    settings = _on_its_server(settings, None if job is None else local.get(job))
    try:
        client = connect(settings)
        remote = read_remote(client, job)
        workers = read_fleet(client).workers
        where = redact(redis_url(settings))
    except BakehouseError:
        if settings.redis_url is not None and not local:
            raise
    except redis.RedisError as error:
        if not local:
            raise StoppedError(f"Redis cannot be asked: {error}", where=redact(redis_url(settings))) from error
    names = sorted(local.keys() | remote.keys()) if job is None else [job]
    jobs = [status_of_job(name, local.get(name), remote.get(name)) for name in names]
    if job is not None and jobs[0] is None:
        raise StoppedError(f"no job {job}, neither here nor in Redis", where=str(settings.jobs.absolute()))
    return Status([found for found in jobs if found is not None], list(workers), where)


def _find_local(settings: Settings, job: str | None) -> dict[str, JobDirectory]:
    if job is None:
        return {found.spec.job: found for found in JobDirectory.list_all(settings.jobs)}
    is_here = (settings.jobs.absolute() / check_job_id(job) / "job.json").is_file()
    return {job: JobDirectory.open(settings.jobs, job)} if is_here else {}


def _on_its_server(settings: Settings, directory: JobDirectory | None) -> Settings:
    """The settings, with the server that a job brought along, while it is there."""
    url = None
    if directory is not None and directory.spec.redis == "embedded":
        url = socket_url(directory.server_path)
    return settings if url is None else settings.model_copy(update={"redis_url": url, "redis_password_file": None})


def connect(settings: Settings) -> redis.Redis:
    """A client of the settings' Redis that waits for no call longer than 3 s. Raises as `check_server`."""
    url = redis_url(settings)
    client = make_client(url, socket_timeout_s=min(3.0, settings.socket_timeout_s))
    check_server(client, url=url)
    return client


def read_remote(client: redis.Redis, job: str | None) -> dict[str, dict[str, str]]:
    """`info` of each job in Redis, or of `job` alone. Raises `redis.RedisError`."""
    listed = cast(dict[bytes, bytes], client.hgetall(keys.JOBS))
    names = set(job_ids(listed)) if job is None else {job}
    found = {}
    for name in names:
        info = cast(dict[bytes, bytes], client.hgetall(keys.info(name)))
        fields = {field.decode(errors="replace"): value.decode(errors="replace") for field, value in info.items()}
        if manifest := listed.get(name.encode()):
            fields.setdefault("manifest", manifest.decode(errors="replace"))
        if fields:
            found[name] = fields
    return found


def status_of_job(job: str, local: JobDirectory | None, info: dict[str, str] | None) -> JobStatus | None:
    """How one job stands, by its journal or by its `info`; None where neither is known."""
    if local is None and info is None:
        return None
    checkpoint = None if local is None else read_checkpoint(local.journal_path)
    if local is not None and checkpoint is not None:
        status = status_here(local, checkpoint)
        outlook = Outlook.of(info or {}) if status.collector else None
        events = outlook.events if outlook else tuple(read_tail(local.log_path, job))
        return replace(status, outlook=outlook, events=events)
    return _status_elsewhere(job, local, info or {})


def status_here(directory: JobDirectory, checkpoint: Checkpoint) -> JobStatus:
    """How the job in `directory` stands by its journal."""
    counts: dict[str, int | None] = asdict(checkpoint.counts)
    state: str = status_of(checkpoint.state, checkpoint.counts, cancelled=checkpoint.steering.cancelled)
    if state == "in_progress" and checkpoint.counts.finished:
        state = "finalizing"
    return JobStatus(
        job=directory.spec.job,
        state=state,
        reason=checkpoint.steering.reason or None,
        counts={name: counts[name] for name in COUNTS},
        exit_code=checkpoint.exit_code,
        host=directory.spec.host,
        directory=str(directory.path),
        output=str(directory.output_path),
        collector=read_holder(directory.lock_path),
        tags=directory.spec.tags,
        deadline=_deadline_of(directory),
        **_work_of(checkpoint.counts),
    )


def _deadline_of(directory: JobDirectory) -> str | None:
    deadline = read_deadline(directory.deadline_path)
    return None if deadline is None else deadline.at.isoformat()


def _work_of(counts: Counts) -> dict[str, Any]:
    """What was done, in fields of `JobStatus`."""
    names = ("prompt_tokens", "completion_tokens", "failures", "late", "gpu_s")
    return {name: getattr(counts, name) for name in names}


def _manifest_of(text: str) -> dict[str, Any]:
    """What a job says of itself; nothing where it cannot be read, since one job must not hide the others."""
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _status_elsewhere(job: str, local: JobDirectory | None, info: dict[str, str]) -> JobStatus:
    manifest = _manifest_of(info.get("manifest", "{}"))
    outlook = None if info.get("state") == "done" else Outlook.of(info)
    deadline = outlook.deadline if outlook else None
    return JobStatus(
        job=job,
        state=_state_of(info),
        reason=info.get("reason") or None,
        counts={name: _number(info.get(name)) for name in COUNTS},
        exit_code=_number(info.get("exit")) if info.get("state") == "done" else None,  # a rerun has not ended as before
        host=local.spec.host if local else manifest.get("host"),
        directory=str(local.path) if local else manifest.get("directory"),
        output=str(local.output_path) if local else manifest.get("output"),
        tags=local.spec.tags if local else manifest.get("tags", {}),
        deadline=_deadline_of(local) if local else deadline,
        outlook=outlook,
        events=outlook.events if outlook else (),
        **_work_of(counts_of(info)),
    )


def _state_of(info: dict[str, str]) -> str:
    state = info.get("state", "")
    return info.get("status", "completed") if state == "done" else _STATES.get(state, "validating")


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None


def _flat(job: JobStatus, gpu_hourly_cost: float | None) -> dict[str, Any]:
    fields = {**asdict(job), "tokens": job.tokens, **job.counts}
    del fields["counts"]
    if gpu_hourly_cost is not None:
        fields["cost"] = cost_of(job.gpu_s, per_hour=gpu_hourly_cost)
    return fields
