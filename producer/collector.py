"""The collector: one job's loop under its lock. It feeds, receives, recovers and writes until all lines have results.

One thread, one turn after the other: receive what is there, feed as far as the window has room, look every 2 s. What
must never happen is decided in the journal; everything here may stop at any moment and be begun again.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Literal

import redis

from common.errors import ExitCode, InterruptedJobError
from common.log import Event, get_logger
from common.settings import Settings
from producer import ownership
from producer.cancelling import Cancelling
from producer.counts import Counts
from producer.disk import DiskError
from producer.endurance import LONGEST_PAUSE_S, Endurance
from producer.feeder import STEP_ROWS, Feeder
from producer.figures import Figures
from producer.helm import Helm
from producer.janitor import Janitor
from producer.job import FencedError, Job
from producer.job_directory import JobDirectory
from producer.journal import Journal
from producer.linger import LONGEST_S, Linger
from producer.lookout import Lookout
from producer.notice import Notice, withdraw
from producer.outcome import Outcome, ended, exit_code_of
from producer.output import Output
from producer.pacing import Pacing
from producer.patience import GaveUpError, Patience
from producer.receiver import Receiver
from producer.steering import JobState, Wish, end
from producer.surroundings import Surroundings

WAITING_LOOK_S = 0.25
"""While something is waited for, looks are this close: work begins as soon as a worker is there."""

log = get_logger(__name__)

Until = Literal["fed", "done"]


class Collector:
    """Owns one job while `run` runs; used once."""

    def __init__(
        self,
        directory: JobDirectory,
        *,
        settings: Settings,
        client: redis.Redis,
        on_progress: Callable[[Counts], None] | None = None,
        on_waiting: Callable[[str | None], None] | None = None,
        wish: Wish | None = None,
    ) -> None:
        """`on_progress` gets the counts several times a second, `on_waiting` what is waited for (None: nothing).

        `wish` is obeyed after all that were left for the job before.
        """
        self._directory = directory
        self._settings = settings
        self._client = client
        self._on_progress = on_progress or (lambda _counts: None)
        self._on_waiting = on_waiting or (lambda _reason: None)
        self._stop = False
        self._next_look_s = 0.0
        self._owned = False
        self._wish = wish
        self._state: JobState = "open"
        """What it works on the job as."""
        self._quiet_at: int | None = None
        """How often the stream had been seen empty when nothing was held any more."""

    def stop(self) -> None:
        """End `run` soon; safe in a signal handler. What has come in is settled, all else goes on at the next start."""
        self._stop = True

    def run(self, *, until: Until, stays: bool = False) -> Outcome:
        """Feed the first window (`fed`), or see the job through (`done`). Blocks; holds the job's lock meanwhile.

        A paused job ends it once nothing is held and all results are in; with `stays` it waits for a resume instead.
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
                return self._run(until, stays=stays)
            except GaveUpError:
                if self._journal.course.state != "cancelling":
                    raise
                return self._end_without_redis()
            finally:
                self._leave()

    def _enter(self, open_: ExitStack) -> None:
        self._output = Output(self._directory.output_path, self._directory.errors_path)
        open_.callback(self._output.close)
        self._output.check(self._journal)
        self._job = Job(self._directory, settings=self._settings, client=self._client, journal=self._journal)
        open_.callback(self._job.close)
        self._feeder = Feeder(self._job)
        open_.callback(self._feeder.close)
        self._receiver = Receiver(self._job, self._output)
        self._janitor = Janitor(self._job, self._receiver)
        self._pacing = Pacing(self._job)
        self._linger = Linger(self._settings.linger_s)
        self._helm = Helm(self._directory, journal=self._journal, client=self._client)
        self._endurance = open_.enter_context(Endurance(self._directory, settings=self._settings, sufferer=self))
        self._around = Surroundings(self._job)
        self._figures = Figures(self._job, feeder=self._feeder, around=self._around, on_progress=self._on_progress)
        open_.callback(self._figures.clear)
        now_s = time.monotonic()
        self._lookout = Lookout(self._job, feeder=self._feeder, around=self._around)
        open_.callback(self._lookout.close)
        self._notice = Notice(self._job, now_s=now_s, expects=self._lookout.fields)
        self._patience = Patience(
            give_up_after_s=self._settings.give_up_after_s,
            say=self._say,
            now_s=now_s,
            blind_s=self._settings.socket_timeout_s + LONGEST_PAUSE_S,
        )

    def _run(self, until: Until, *, stays: bool) -> Outcome:
        self._endurance.bear(lambda: ownership.take(self._job))
        self._open_output()
        log.info(Event.PROCESSING_STARTED, job=self._job.id, epoch=self._journal.epoch, until=until)
        while True:
            moved = self._endurance.bear(self._turn)
            if self._journal.is_whole:
                return self._finish()
            is_fed = until == "fed" and not moved and not self._feeder.lingers
            if is_fed or (self._is_at_rest and not stays):
                if self._state == "paused":
                    why = self._helm.course.steering.reason
                    return Outcome(self._journal.counts.copy(), ExitCode.NOT_FINISHED, "paused", why)
                return Outcome(self._journal.counts.copy(), ExitCode.OK, self._state, self._find_reason())

    def _open_output(self) -> None:
        self._output.open(self._journal)  # only now: an old copy of the journal must not cut a newer file
        self._owned = True

    def _turn(self) -> int:
        """Receive, look when it is time, and do what the job's state asks for; returns how many lines that moved."""
        self.check_stop()
        began_s = time.monotonic()
        received = self._receiver.receive()  # first: it makes room on a server that refuses what a look may want
        if received:
            self._patience.progress(now_s=began_s)
        self._helm.judge()
        if began_s >= self._next_look_s or self._helm.course.state != self._state:
            self._look(began_s)
        self._janitor.let_suspects_travel(now_s=began_s)
        moved = self._work()
        now_s = time.monotonic()
        if moved:
            self._patience.progress(now_s=now_s)
        self._figures.tell(now_s=now_s)
        if moved < STEP_ROWS:  # gather results for a while: one commit for many entries
            time.sleep(self._pause_s(moved + received, took_s=now_s - began_s))
        return moved

    def _pause_s(self, moved: int, *, took_s: float) -> float:
        if self._is_at_rest or self._feeder.is_idle:
            return LONGEST_S
        has_time = self._state == "open" and self._pacing.has_enough(all_fed=self._feeder.done)
        return self._linger.pause_s(moved, took_s=took_s, has_time=has_time)

    def _work(self) -> int:
        """Feed, or cancel the rest, or nothing; returns how many lines that moved."""
        if self._state == "cancelling":
            return self._cancelling.step()
        if self._state == "paused":
            return 0
        limits = self._around.limits
        fed = 0 if self._job.full else self._feeder.feed(limits, capacity=self._job.fleet.capacity())
        self._pacing.let_travel(most=limits.requests, now_s=time.monotonic())
        return fed

    def _look(self, now_s: float) -> None:
        self._around.refresh(now_s=now_s)
        if self._janitor.look(now_s=now_s) or self._state == "paused" or self._feeder.is_idle:
            self._patience.progress(now_s=now_s)
        self._helm.hear(self._wish)
        self._take_course()
        reason = self._find_reason()
        self._lookout.look(reason, now_s=now_s)
        self._notice.renew(now_s=now_s)
        self.wait_for(reason, now_s)
        is_close = reason is not None and not self._is_at_rest and not self._feeder.is_idle
        self._next_look_s = now_s + (min(WAITING_LOOK_S, self._settings.look_s) if is_close else self._settings.look_s)

    def _take_course(self) -> None:
        """Work on as what the job has become."""
        if self._helm.course.state != self._state:
            self._state = self._helm.course.state
            self._janitor.change_course()
            if self._state == "cancelling":
                self._cancelling = Cancelling(
                    self._job, feeder=self._feeder, receiver=self._receiver, janitor=self._janitor
                )
        if self._janitor.held != 0:
            self._quiet_at = None
        elif self._quiet_at is None:
            self._quiet_at = self._receiver.empties

    def _end_without_redis(self) -> Outcome:
        """A cancelled job must come to its end, also when Redis does not come back."""
        if not self._owned:
            ownership.take_without_redis(self._job)
            self._open_output()
        self._take_course()
        self._cancelling.end_without_redis(before_each=self.check_stop)
        return self._finish()

    @property
    def _is_at_rest(self) -> bool:
        """Whether the job is paused, and nothing of it is under way any more."""
        quiet_at = self._quiet_at
        return self._state == "paused" and quiet_at is not None and self._receiver.empties > quiet_at

    def _find_reason(self) -> str | None:
        """What the job waits for."""
        if self._state == "cancelling":
            return self._cancelling.waits_for
        if self._state == "paused":
            return f"paused: {self._helm.course.steering.reason}"
        return self._around.find_reason(all_fed=self._feeder.done) or self._feeder.waits_for()

    def wait_for(self, reason: str | None, now_s: float) -> None:
        """Say what is waited for. Raises `StoppedError` when nothing has moved for too long."""
        self._on_waiting(reason)
        self._patience.wait_for(reason, now_s=now_s)

    def look_again(self, *, full: bool) -> None:
        """Look at once, or (`full`: Redis takes no hints) offer nothing before the next look."""
        self._job.full = self._job.full or full
        self._next_look_s = time.monotonic() + self._settings.look_s if full else 0.0
        if not full:
            self._helm.hear_without_redis(self._wish)

    def _say(self, reason: str, waited_s: float) -> None:
        log.info(Event.JOB_WAITING, job=self._job.id, reason=reason, waited_s=round(waited_s))

    def check_stop(self) -> None:
        """Raises `InterruptedJobError` once it has been told to end."""
        if self._stop:
            raise InterruptedJobError("stopped before the job was done", where=self._directory.spec.job)

    def _leave(self) -> None:
        """Settle what has come in meanwhile, and drop lines from the journal that the ordered file has for certain.

        Best effort on every way out: what it does not reach, the next start does.
        """
        if not self._owned or self._journal.is_broken or self._journal.epoch_now() != self._journal.epoch:
            return
        with suppress(redis.RedisError, FencedError):
            if self._stop:
                self._receiver.receive()
            if self._state == "open" and not self._endurance.failures:
                self._pacing.leave(now_s=time.monotonic())
            if self._helm.course.state != "done":
                self._notice.renew(now_s=time.monotonic())
        with suppress(DiskError), self._journal.writing():
            self._journal.forget_pending(below=self._output.synced_frontier)
        self._figures.show()

    def _finish(self) -> Outcome:
        """The ordered file is whole and synced: note the end in the journal, then in Redis."""
        self._on_waiting("the ordered file is written anew" if self._journal.round else None)
        self._output.renew(self._journal)
        self._lookout.count_usage(now_s=time.monotonic())
        counts, fail_above = self._journal.counts, self._directory.spec.fail_above
        course = end(self._journal.course)
        exit_code = exit_code_of(counts, fail_above=fail_above, cancelled=course.steering.cancelled)
        with self._journal.writing():
            self._journal.steer(course)
            self._journal.finish(exit_code=exit_code)
        outcome = self._close_job()
        log.info(Event.JOB_FINISHED, job=self._job.id, status=outcome.status, exit_code=outcome.exit_code)
        return outcome

    def _close_job(self) -> Outcome:
        """How a finished job ended; what Redis still has of it goes. A crash before: the next start does the same."""
        checkpoint, job = self._journal.checkpoint(), self._directory.spec.job
        outcome = ended(checkpoint)
        self._directory.want_path.unlink(missing_ok=True)  # a rerun finds no wish from before
        withdraw(self._client, job, epoch=checkpoint.epoch, outcome=outcome)
        return outcome
