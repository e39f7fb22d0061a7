"""One job's run from its lock to its outcome: on the fleet's Redis, or on a server and a worker brought along."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Literal, NamedTuple

import redis

from common import keys
from common.broker import check_server, make_client, redis_url
from common.errors import BakehouseError, ExitCode, InterruptedJobError, StoppedError
from common.log import configure, redact
from common.settings import Settings
from producer.collector import Collector
from producer.counts import Counts
from producer.disk_need import saying_how_much
from producer.embedded import EmbeddedServer
from producer.interrupts import Interrupts
from producer.job_directory import JobDirectory
from producer.job_lock import JobLock
from producer.job_spec import EmbeddedWorker
from producer.journal_reader import read_checkpoint
from producer.local_worker import LocalWorker, worker_arguments, worker_environment
from producer.metrics_port import metrics_port
from producer.minder import Embedded, Minder
from producer.notice import withdraw
from producer.outcome import Outcome, ended
from producer.progress import Show
from producer.steering import Wish

Until = Literal["fed", "done"]


class Run(NamedTuple):
    """What one run came to."""

    outcome: Outcome
    elapsed_s: float
    """From the collector's start, or from when the embedded worker was ready, to the collector's end."""


def run_job(
    directory: JobDirectory, *, settings: Settings, show: Show, until: Until = "done", wish: Wish | None = None
) -> Run:
    """Run the job in `directory` until it is fed, done or paused. Blocks; from the main thread only.

    `wish` is obeyed after all that were left for the job.

    Raises `RefusedError` when another process owns the job, `StoppedError` and `InterruptedJobError` when it is not
    finished: the same command goes on with it.
    """
    configure(level=settings.log_level, file=settings.log_file or directory.log_path, quiet_terminal=True)
    with ExitStack() as open_:
        if until == "done" and directory.spec.worker is None:
            open_.enter_context(metrics_port(settings))
        open_.enter_context(resumable(directory.spec.job))
        open_.enter_context(saying_how_much(directory))
        interrupts = open_.enter_context(Interrupts())
        if directory.spec.worker is None:
            return run_on_fleet(directory, settings=settings, show=show, interrupts=interrupts, until=until, wish=wish)
        return _run_embedded(directory, directory.spec.worker, settings, show=show, interrupts=interrupts, wish=wish)


@contextmanager
def resumable(job: str) -> Iterator[None]:
    """Whatever stops the block names the way to go on, unless it was refused or is over."""
    try:
        yield
    except BaseException as error:
        is_refused = isinstance(error, BakehouseError) and error.exit_code == ExitCode.REFUSED
        if not is_refused and continue_line(job) not in getattr(error, "__notes__", ()):
            error.add_note(continue_line(job))
        raise


def continue_line(job: str) -> str:
    """What to type to go on with `job`."""
    return f"continue: producer resume {job}"


def run_on_fleet(
    directory: JobDirectory,
    *,
    settings: Settings,
    show: Show,
    interrupts: Interrupts,
    until: Until = "done",
    wish: Wish | None = None,
    stays: bool = False,
) -> Run:
    """Run the job in `directory` on the Redis that `settings` name, with whatever workers are there.

    With `stays` a pause does not end it: it waits for the resume. Redis must be there, but for a job that is cancelled.
    """
    url = redis_url(settings)
    client = make_client(url, socket_timeout_s=settings.socket_timeout_s)
    try:
        show.say(f"job {directory.spec.job} on {check_server(client, url=url)} at {redact(url)}")
    except StoppedError as error:
        if not is_cancelled(directory, wish):
            raise
        show.say(f"{error.what}; after give_up_after_s ({settings.give_up_after_s:g} s) the job ends without it")
    return _collect(
        directory,
        _make_collector(directory, settings, client, show.update, show.wait, wish),
        interrupts=interrupts,
        show=show,
        until=until,
        stays=stays,
    )


def _run_embedded(
    directory: JobDirectory,
    spec: EmbeddedWorker,
    settings: Settings,
    *,
    show: Show,
    interrupts: Interrupts,
    wish: Wish | None,
) -> Run:
    server = EmbeddedServer(directory.server_path, log_path=directory.path / "logs" / "redis.log")
    with ExitStack() as open_:
        open_.enter_context(JobLock(directory.path / "redis.lock"))
        open_.enter_context(server)
        show.say(f"job {directory.spec.job} on embedded {server.version} and {describe_worker(spec)}")
        settings = settings.model_copy(update={"redis_url": server.url, "redis_password_file": None})
        open_.enter_context(metrics_port(settings))
        client = make_client(server.url, socket_timeout_s=settings.socket_timeout_s)
        if is_cancelled(directory, wish):
            collector = _make_collector(directory, settings, client, show.update, show.wait, wish)
            run = _collect(directory, collector, interrupts=interrupts, show=show)
        else:
            embedded = Embedded(
                server,
                _make_worker(directory, spec, settings, url=server.url),
                client,
                workers=spec.workers,
                drain_timeout_s=settings.drain_timeout_s,
            )
            on_progress, on_waiting = embedded.once_ready(show.update), embedded.once_ready(show.wait)
            with embedded.worker:
                collector = _make_collector(directory, settings, client, on_progress, on_waiting, wish)
                run = _collect(directory, collector, interrupts=interrupts, show=show, embedded=embedded)
    if run.outcome.state == "done":
        server.discard()
    return run


def is_cancelled(directory: JobDirectory, wish: Wish | None) -> bool:
    """Whether nothing of the job is to be run any more, so that it needs no worker."""
    checkpoint = read_checkpoint(directory.journal_path)
    return (wish is not None and wish.verb == "cancel") or (checkpoint is not None and checkpoint.state == "cancelling")


def withdraw_late(directory: JobDirectory, *, settings: Settings) -> None:
    """Take a cancelled job that ended without its Redis out of it, now that it is back. Best effort."""
    job = directory.spec.job
    client = make_client(redis_url(settings), socket_timeout_s=settings.socket_timeout_s)
    with suppress(redis.RedisError, BakehouseError):
        if client.hget(keys.info(job), "state") in (None, b"done"):
            return
        with directory.lock():
            checkpoint = read_checkpoint(directory.journal_path)
            if checkpoint is not None and checkpoint.state == "done":
                withdraw(client, job, epoch=checkpoint.epoch, outcome=ended(checkpoint))


def _make_worker(directory: JobDirectory, spec: EmbeddedWorker, settings: Settings, *, url: str) -> LocalWorker:
    return LocalWorker(
        worker_arguments(spec),
        environment=worker_environment(settings, url=url, log_file=directory.events_log_path, base=os.environ),
        log_path=directory.worker_log_path,
        drain_timeout_s=settings.drain_timeout_s,
    )


def _make_collector(
    directory: JobDirectory,
    settings: Settings,
    client: redis.Redis,
    on_progress: Callable[[Counts], None],
    on_waiting: Callable[[str | None], None],
    wish: Wish | None,
) -> Collector:
    return Collector(
        directory,
        settings=settings,
        client=client,
        on_progress=on_progress,
        on_waiting=on_waiting,
        wish=wish,
    )


def describe_worker(spec: EmbeddedWorker) -> str:
    """`one local worker (simulated engine: answers are made up)`."""
    count = "one local worker" if spec.workers == 1 else f"{spec.workers} local workers"
    engine = "simulated engine: answers are made up" if spec.engine == "sim" else f"vLLM with {spec.served_model_name}"
    return f"{count} ({engine})"


def _collect(
    directory: JobDirectory,
    collector: Collector,
    *,
    interrupts: Interrupts,
    show: Show,
    embedded: Embedded | None = None,
    until: Until = "done",
    stays: bool = False,
) -> Run:
    """Run `collector` under a minder. Raises what the minder told it to stop for, else what the collector raises."""
    minder = Minder(
        collector,
        job=directory.spec.job,
        interrupts=interrupts,
        show=show,
        embedded=embedded,
        on_interrupt=directory.input.interrupt_copying,
    )
    began = time.monotonic()
    try:
        with interrupts.watched(), minder:
            outcome = collector.run(until=until, stays=stays)
    except (StoppedError, InterruptedJobError) as error:
        if minder.verdict is None or minder.verdict is error:
            raise
        raise minder.verdict from error
    if embedded is not None and embedded.ready_s is not None:
        began = embedded.ready_s
    return Run(outcome, time.monotonic() - began)
