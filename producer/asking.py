"""Asking: from any host, a job's collector is asked to pause, resume or cancel the job, and what came of it is said.

A wish is left in Redis, and on the job's own host in its directory as well, where a collector finds it without Redis.
"""

import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, cast

import redis

from common import keys
from common.broker import check_server, make_client, redis_url
from common.claims import Claims
from common.errors import ExitCode, RefusedError, StoppedError
from common.log import redact
from common.settings import Settings
from producer.audit import by_whom, note_command
from producer.helm import Helm
from producer.job import FencedError
from producer.job_directory import JobDirectory
from producer.job_lock import read_holder
from producer.job_spec import check_job_id
from producer.jobs import go_on, read_summary
from producer.journal import Journal
from producer.journal_reader import read_checkpoint
from producer.progress import Show
from producer.session import continue_line
from producer.status import read_status
from producer.steering import Verb, Wish
from producer.summary import Summary
from producer.wish_file import leave_wish, read_wish

HEARD_S = 10.0
"""A collector looks every 2 s; one that lives moves `seen` meanwhile."""
TURN_S = 0.2
ANSWER_S = 3.0
"""One call of Redis."""
_MEANT = {"pause": ("paused",), "resume": ("in_progress", "finalizing"), "cancel": ("cancelling", "cancelled")}
"""What the job should be then."""


class Answer(NamedTuple):
    """What came of a wish."""

    text: str
    code: int


class Asking:
    """One wish about one job."""

    def __init__(self, verb: Verb, job: str, *, settings: Settings) -> None:
        """Raises `RefusedError`, `StoppedError` when the job is not of this host and Redis cannot be reached."""
        self.wish = Wish.make(verb, by=by_whom())
        self._job = check_job_id(job)
        self._settings = settings
        is_here = (settings.jobs.absolute() / job / "job.json").is_file()
        self.directory = JobDirectory.open(settings.jobs, job) if is_here else None
        """The job's own, on its own host."""
        note_command(verb, self.directory, job=job)
        self.client = self._connect()
        """None: the job has a server of its own, or this one is gone."""
        self._is_left = False

    def ask(self) -> Answer | None:
        """Leave the wish and wait until it is heard, 10 s at most. None: the caller is to carry it out.

        That is so on the job's own host while no process has the job. Raises `RefusedError`: no such job, or it has
        come to another end.
        """
        until_s = time.monotonic() + HEARD_S
        first = self._info().get("seen")
        while True:
            if self.directory is not None and read_holder(self.directory.lock_path) is None:
                return None
            if not self._is_left:
                self._leave()
            if self._is_heard():
                return self.describe_heard()
            if time.monotonic() >= until_s:
                return self._describe_unheard(is_alive=self._info().get("seen") != first)
            time.sleep(TURN_S)

    def _connect(self) -> redis.Redis | None:
        if self.directory is not None and self.directory.spec.redis == "embedded":
            return None
        url = redis_url(self._settings)
        client = make_client(url, socket_timeout_s=min(ANSWER_S, self._settings.socket_timeout_s))
        try:
            check_server(client, url=url)
        except StoppedError as error:
            if self.directory is not None:
                return None
            if self._settings.redis_url is None:
                raise self._no_job() from error
            raise
        return client

    def _leave(self) -> None:
        """Leave the wish where it is looked for. Raises `RefusedError`."""
        if self.directory is not None:
            standing = read_wish(self.directory.want_path)
            if standing is not None and standing.verb == "cancel" and not self._has_heard(standing.nonce):
                raise self._cancel_stands()
            leave_wish(self.directory.want_path, self.wish)
        answer: str | None = None
        if self.client is not None:
            with suppress(redis.RedisError):
                answer = Claims(self.client).ask(self._job, str(self.wish))
        if answer == "CANCEL":
            raise self._cancel_stands()
        if answer == "NOJOB" and self.directory is None:
            raise self._no_job()
        self._is_left = answer is not None or self.client is None

    def _no_job(self) -> RefusedError:
        return RefusedError(
            f"no job {self._job} here, nor in Redis",
            where=f"{self._settings.jobs.absolute()}, {redact(redis_url(self._settings))}",
            do="see producer status; set --jobs or --redis-url",
        )

    def _cancel_stands(self) -> RefusedError:
        return RefusedError(f"job {self._job} is to be cancelled: that wish stands, and no collector has heard it yet")

    def _is_heard(self) -> bool:
        if self.directory is None and self._info().get("state") == "done":
            return True
        return self._has_heard(self.wish.nonce)

    def _has_heard(self, nonce: str) -> bool:
        if self.directory is None:
            return nonce in self._info().get("heard", "").split()
        checkpoint = read_checkpoint(self.directory.journal_path)
        return checkpoint is not None and nonce in checkpoint.steering.heard

    def _info(self) -> dict[str, str]:
        """What Redis says of the job; nothing while it does not answer."""
        if self.client is None:
            return {}
        with suppress(redis.RedisError):
            fields = cast(dict[bytes, bytes], self.client.hgetall(keys.info(self._job)))
            return {name.decode(): value.decode(errors="replace") for name, value in fields.items()}
        return {}

    def describe_heard(self) -> Answer:
        """What the job has become."""
        (found,) = read_status(self._settings, job=self._job).jobs
        said = f"job {self._job} is {found.state.replace('_', ' ')}"
        said += f": {found.reason}" if found.reason else ""
        if found.state not in _MEANT[self.wish.verb]:
            raise RefusedError(said)
        who = f", {found.collector} works on it" if self.wish.verb == "resume" and found.collector else ""
        return Answer(said + who, ExitCode.OK)

    def _describe_unheard(self, *, is_alive: bool) -> Answer:
        """Where the wish stands, and who has to come."""
        left = f"the wish to {self.wish.verb} job {self._job} is left"
        if self.directory is not None:
            holder = read_holder(self.directory.lock_path)
            return Answer(f"{left}; {holder or 'nobody'} works on it and has not looked yet", ExitCode.NOT_FINISHED)
        if is_alive:
            return Answer(f"{left}; its collector lives and has not looked yet", ExitCode.NOT_FINISHED)
        (found,) = read_status(self._settings, job=self._job).jobs
        if found.host == socket.gethostname() and not Path(found.directory or "").exists():
            raise RefusedError(f"the directory of job {self._job} is gone", where=str(found.directory))
        return Answer(
            f"{left} in Redis, and no collector of it is alive\n"
            f"it lives on host {found.host}, in {found.directory}\n{continue_line(self._job)}",
            ExitCode.NOT_FINISHED,
        )


def pause(job: str, *, settings: Settings) -> Answer:
    """Pause `job`. Raises as `Asking.ask`."""
    asking = Asking("pause", job, settings=settings)
    answer = asking.ask()
    if answer is None:
        answer = _pause_here(asking)
    return answer


def cancel(job: str, *, settings: Settings, show: Show) -> Answer:
    """Cancel `job`; on its own host, where no process has it, until it is cancelled. Raises as `Asking.ask`."""
    asking = Asking("cancel", job, settings=settings)
    answer = asking.ask()
    if answer is not None:
        return answer
    assert asking.directory is not None
    done = read_summary(asking.directory)
    if done is None:
        done = go_on(asking.directory, settings=settings, show=show, wish=asking.wish)
    said = f"job {job} is {done.state}, {done.counts.done:,} results in {done.output}"
    if done.state != "cancelled":
        raise RefusedError(said)
    return Answer(said, ExitCode.OK)


def resume(job: str, *, settings: Settings, show: Show) -> Answer | Summary:
    """Lift a pause of `job`; on its own host, where no process has it, go on with it, whatever stopped it."""
    asking = Asking("resume", job, settings=settings)
    answer = asking.ask()
    if answer is not None:
        return answer
    assert asking.directory is not None
    return go_on(asking.directory, settings=settings, show=show, wish=asking.wish)


def _pause_here(asking: Asking) -> Answer:
    """Pause a job that no process has: in its journal, and in Redis where that is reached."""
    directory = asking.directory
    assert directory is not None
    with directory.lock(), Journal.open(directory.journal_path) as journal:
        helm = Helm(directory, journal=journal, client=asking.client)
        if journal.course.state != "done":
            with suppress(redis.RedisError, FencedError):  # what Redis is not told now, the next collector tells it
                helm.hear(asking.wish)
            helm.hear_without_redis(asking.wish)
    return asking.describe_heard()
