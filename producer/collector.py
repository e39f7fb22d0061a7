"""The collector: one job's loop under its lock. It feeds, receives, recovers and writes until all lines have results.

One thread, one turn after the other: receive what is there, feed as far as the window has room, look every 2 s. What
must never happen is decided in the journal; everything here may stop at any moment and be begun again.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Literal, TypeVar

import redis
from celery import Celery

from common.broker import redis_url, refuses_writes
from common.errors import InterruptedJobError
from common.log import Event, get_logger, redact
from common.settings import Settings
from producer import ownership
from producer.counts import Counts
from producer.disk import MAKE_ROOM, DiskError, is_disk_full
from producer.feeder import STEP_ROWS, Feeder
from producer.janitor import Janitor
from producer.job import FencedError, Job
from producer.job_directory import JobDirectory
from producer.journal import Journal
from producer.metrics import JobGauges
from producer.notice import Notice, withdraw
from producer.outcome import Outcome, exit_code_of
from producer.output import Output
from producer.patience import Patience
from producer.receiver import Receiver
from producer.surroundings import Surroundings

TURN_S = 0.1
"""The stop flag is checked at least this often."""
PROGRESS_S = 0.1
WAITING_LOOK_S = 0.25
"""While something is waited for, looks are this close: work begins as soon as a worker is there."""
SHORTEST_PAUSE_S = 0.002
LONGEST_PAUSE_S = 2.0
"""Between two tries to reach a lost Redis."""
WITHDRAW_S = 2.0
"""A finished job is tried to be taken out of Redis for so long."""
FULL_DISK_S = 10.0
"""So long Redis may refuse writes for want of room on its disk."""

log = get_logger(__name__)

Until = Literal["fed", "done"]
T = TypeVar("T")


class Collector:
    """Owns one job while `run` runs; used once."""

    def __init__(
        self,
        directory: JobDirectory,
        *,
        settings: Settings,
        client: redis.Redis,
        app: Celery,
        on_progress: Callable[[Counts], None] | None = None,
        on_waiting: Callable[[str | None], None] | None = None,
    ) -> None:
        """`on_progress` gets the counts several times a second, `on_waiting` what is waited for (None: nothing)."""
        self._directory = directory
        self._settings = settings
        self._client = client
        self._app = app
        self._on_progress = on_progress or (lambda _counts: None)
        self._on_waiting = on_waiting or (lambda _reason: None)
        self._stop = False
        self._next_look_s = 0.0
        self._told_s = 0.0
        self._failures = 0
        self._refused_s: float | None = None
        """Since when Redis has refused every write."""
        self._owned = False

    def stop(self) -> None:
        """End `run` soon; safe in a signal handler. What has come in is settled, all else goes on at the next start."""
        self._stop = True

    def run(self, *, until: Until) -> Outcome:
        """Feed the first window (`fed`), or see the job through (`done`). Blocks; holds the job's lock meanwhile.

        Raises `RefusedError`: another process has the lock, the journal is an old copy, the ordered file or the input
        was changed; `StoppedError`: nothing moves, a newer collector, a full disk; `InterruptedJobError`: `stop`.
        Nothing that was journaled is lost, whatever ends it.
        """
        with ExitStack() as open_:
            open_.enter_context(self._directory.lock())
            self._journal = open_.enter_context(Journal.open(self._directory.journal_path))
            if self._journal.checkpoint().state == "done":
                return self._close_job()
            self._enter(open_)
            try:
                return self._run(until)
            finally:
                self._leave()

    def _enter(self, open_: ExitStack) -> None:
        self._output = Output(self._directory.output_path, self._directory.errors_path)
        open_.callback(self._output.close)
        self._output.check(self._journal)
        self._job = Job(
            self._directory, settings=self._settings, client=self._client, app=self._app, journal=self._journal
        )
        open_.callback(self._job.close)
        self._feeder = Feeder(self._job)
        open_.callback(self._feeder.close)
        self._receiver = Receiver(self._job, self._output)
        self._janitor = Janitor(self._job, self._receiver)
        self._around = Surroundings(self._job)
        self._gauges = JobGauges()
        open_.callback(self._gauges.clear)
        now_s = time.monotonic()
        self._notice = Notice(self._job, now_s=now_s)
        self._patience = Patience(
            give_up_after_s=self._settings.give_up_after_s,
            say=self._say,
            now_s=now_s,
            blind_s=self._settings.socket_timeout_s + LONGEST_PAUSE_S,
        )

    def _run(self, until: Until) -> Outcome:
        self._patiently(lambda: ownership.take(self._job))
        self._output.open(self._journal)  # only now: an old copy of the journal must not cut a newer file
        self._owned = True
        log.info(Event.PROCESSING_STARTED, job=self._job.id, epoch=self._journal.epoch, until=until)
        while True:
            fed = self._patiently(self._turn)
            counts = self._journal.counts
            if counts.finished and self._journal.frontier == counts.total:
                return self._finish()
            if until == "fed" and not fed:
                reason = self._around.find_reason(all_fed=self._feeder.done)
                return Outcome(counts.copy(), 0, "open", reason)

    def _turn(self) -> int:
        """Receive, feed, and look when it is time; returns how many lines were fed or read."""
        self._check_stop()
        began_s = time.monotonic()
        received = self._receiver.receive()  # first: it makes room on a server that refuses what a look may want
        if received:
            self._patience.progress(now_s=began_s)
        if began_s >= self._next_look_s:
            self._look(began_s)
        self._janitor.let_suspects_travel(now_s=began_s)
        fed = 0 if self._job.full else self._feeder.feed(self._around.limits, capacity=self._job.fleet.capacity())
        now_s = time.monotonic()
        if fed:
            self._patience.progress(now_s=now_s)
        self._tell(now_s)
        if fed < STEP_ROWS:  # gather results for a while: one commit for many entries
            time.sleep(min(TURN_S, max(SHORTEST_PAUSE_S, self._settings.linger_s - (now_s - began_s))))
        return fed

    def _look(self, now_s: float) -> None:
        self._around.refresh(now_s=now_s)
        if self._janitor.look(now_s=now_s):
            self._patience.progress(now_s=now_s)
        self._notice.renew(now_s=now_s)
        reason = self._around.find_reason(all_fed=self._feeder.done)
        self._wait_for(reason, now_s)
        self._next_look_s = now_s + (min(WAITING_LOOK_S, self._settings.look_s) if reason else self._settings.look_s)

    def _patiently(self, step: Callable[[], T]) -> T:
        """`step`, again and again while Redis is gone, full or another's; each of them is safe to repeat."""
        while True:
            self._check_stop()
            try:
                result = step()
            except FencedError:
                self._next_look_s = 0.0  # the look finds another epoch, and takes the job again or stops
            except redis.OutOfMemoryError:
                self._bear_full_memory()
            except redis.RedisError as error:
                self._lose(error)
            else:
                if self._failures:
                    log.info(Event.REDIS_FOUND, job=self._job.id, tries=self._failures)
                    self._failures = 0
                    self._refused_s = None
                return result

    def _lose(self, error: redis.RedisError) -> None:
        """Redis did not answer, or not as it should: say so and pause, longer each time."""
        if not self._failures:
            log.warning(Event.REDIS_LOST, job=self._job.id, error=str(error))
        self._failures += 1
        self._next_look_s = 0.0
        if refuses_writes(error):
            self._bear_full_disk(error)
        else:
            self._refused_s = None
            self._wait_for(f"Redis does not answer: {error}", time.monotonic())
        until_s = time.monotonic() + min(LONGEST_PAUSE_S, TURN_S * 2 ** min(self._failures, 10))
        while time.monotonic() < until_s:
            self._check_stop()
            time.sleep(TURN_S)

    def _bear_full_disk(self, error: redis.RedisError) -> None:
        """Redis cannot write its append-only file: wait a little, since a rewrite of it may free room. Then give up."""
        now_s = time.monotonic()
        self._refused_s = now_s if self._refused_s is None else self._refused_s
        self._wait_for(f"Redis cannot write to its disk: {error}", now_s)
        if now_s - self._refused_s >= FULL_DISK_S:
            embedded = self._directory.spec.redis == "embedded"
            path = self._directory.server_path if embedded else None
            raise DiskError(
                "the append-only file of Redis",
                why=str(error),
                path=path,
                where="" if path else redact(redis_url(self._settings)),
                is_full=path is None or is_disk_full(path),
                do=MAKE_ROOM,
            ) from error

    def _bear_full_memory(self) -> None:
        """Redis takes no hint just now: feed nothing and look again later; what comes in meanwhile makes room."""
        now_s = time.monotonic()
        self._job.full = True
        self._next_look_s = now_s + self._settings.look_s
        self._wait_for("Redis is full: it takes no hints", now_s)
        time.sleep(TURN_S)

    def _wait_for(self, reason: str | None, now_s: float) -> None:
        self._on_waiting(reason)
        self._patience.wait_for(reason, now_s=now_s)

    def _say(self, reason: str, waited_s: float) -> None:
        log.info(Event.JOB_WAITING, job=self._job.id, reason=reason, waited_s=round(waited_s))

    def _check_stop(self) -> None:
        if self._stop:
            raise InterruptedJobError("stopped before the job was done", where=self._directory.spec.job)

    def _tell(self, now_s: float) -> None:
        if now_s - self._told_s >= PROGRESS_S:
            self._told_s = now_s
            self._show()

    def _show(self) -> None:
        counts = self._journal.counts
        self._gauges.set(
            backlog=counts.fed - counts.done + self._feeder.unfed(),
            window_bytes=self._job.window.bytes,
            frontier_lag=counts.done - self._journal.frontier,
        )
        self._on_progress(counts.copy())

    def _leave(self) -> None:
        """Settle what has come in meanwhile, and drop lines from the journal that the ordered file has for certain.

        Best effort on every way out: what it does not reach, the next start does.
        """
        if not self._owned or self._journal.is_broken or self._journal.epoch_now() != self._journal.epoch:
            return
        if self._stop:
            with suppress(redis.RedisError, FencedError):
                self._receiver.receive()
        with suppress(DiskError), self._journal.writing():
            self._journal.forget_pending(below=self._output.synced_frontier)
        self._show()

    def _finish(self) -> Outcome:
        """The ordered file is whole and synced: note the end in the journal, then in Redis."""
        counts = self._journal.counts
        with self._journal.writing():
            self._journal.finish(exit_code=exit_code_of(counts, fail_above=self._directory.spec.fail_above))
        outcome = self._close_job()
        log.info(Event.JOB_FINISHED, job=self._job.id, status=outcome.status, exit_code=outcome.exit_code)
        return outcome

    def _close_job(self) -> Outcome:
        """How a finished job ended; what Redis still has of it goes. A crash before: the next start does the same."""
        checkpoint = self._journal.checkpoint()
        counts, exit_code, job = checkpoint.counts, checkpoint.exit_code or 0, self._directory.spec.job
        until_s = time.monotonic() + WITHDRAW_S
        while True:
            try:
                withdraw(self._client, job, epoch=checkpoint.epoch, counts=counts, exit_code=exit_code)
            except redis.RedisError as error:
                if time.monotonic() < until_s:
                    time.sleep(TURN_S)
                    continue
                log.warning(Event.REDIS_LOST, job=job, error=str(error))  # its keys have a lifetime
            return Outcome(counts, exit_code, "done", None)
