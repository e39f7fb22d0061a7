"""`producer wait`: blocks until a job is over, whoever runs it, and ends as the job does. It changes nothing."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from common.errors import BakehouseError, ExitCode, StoppedError
from common.settings import Settings
from producer.interrupts import Interrupts
from producer.job_directory import JobDirectory
from producer.patience import Patience
from producer.progress import Show
from producer.sight import Eye, JournalEye, RedisEye, Sight
from producer.status import connect
from producer.summary import Summary

TURN_S = 0.5
SHOW_AFTER_S = 2.0
BLIND_S = 30.0
"""Who did not look for longer stood still, as in a laptop's sleep, and did not wait meanwhile."""


def wait(job: str, *, settings: Settings, show: Show, timeout_s: float | None) -> Summary:
    """What `job` came to, once it is over; of a paused one what it has come to so far. From the main thread only.

    Raises `StoppedError`: nobody knows the job, it cannot be seen for `give_up_after_s`, or `timeout_s` is over;
    `InterruptedJobError`. The job goes on in any case.
    """
    eye = find_eye(job, settings=settings)
    waiting = Waiting(eye, job=job, show=show, give_up_after_s=settings.give_up_after_s, timeout_s=timeout_s)
    with waits_again(job), Interrupts():
        return summarize(waiting.run())


def find_eye(job: str, *, settings: Settings) -> Eye:
    """Where `job` is to be looked at. Raises `StoppedError`: neither its directory is here nor does Redis know it."""
    if (settings.jobs / job / "job.json").is_file():
        return JournalEye(JobDirectory.open(settings.jobs, job))
    eye = RedisEye(connect(settings), job)
    if eye.look(now_s=time.monotonic()).status is None:
        raise StoppedError(f"no job {job}, neither here nor in Redis", where=str(settings.jobs.absolute()))
    return eye


@contextmanager
def waits_again(job: str) -> Iterator[None]:
    """Whatever ends the wait leaves the job as it is."""
    try:
        yield
    except BakehouseError as error:
        error.add_note(f"continue: producer wait {job} (the job itself goes on as before)")
        raise


class Waiting:
    """Waits for one job, and says why it takes so long. Used once."""

    def __init__(self, eye: Eye, *, job: str, show: Show, give_up_after_s: float, timeout_s: float | None) -> None:
        self._eye = eye
        self._job = job
        self._show = show
        self._began_s = time.monotonic()
        self._ends_s = None if timeout_s is None else self._began_s + timeout_s
        self._patience = Patience(
            give_up_after_s=give_up_after_s, say=lambda *_: None, now_s=self._began_s, blind_s=BLIND_S
        )

    def run(self) -> Sight:
        """Block until the job is over or paused. Raises as `wait`."""
        with ExitStack() as open_:
            shown = False
            while True:
                now_s = time.monotonic()
                sight = self._eye.look(now_s=now_s)
                if sight.is_over or (sight.status is not None and sight.status.state == "paused"):
                    return sight
                self._check_time(sight, now_s)
                if not shown and now_s - self._began_s >= SHOW_AFTER_S:
                    shown = True
                    self._show.say(f"waiting for job {self._job}")
                    open_.enter_context(self._show)
                self._show.wait(sight.lacks)
                if sight.status is not None:
                    self._show.update(sight.counts)
                time.sleep(TURN_S if self._ends_s is None else max(0.0, min(TURN_S, self._ends_s - now_s)))

    def _check_time(self, sight: Sight, now_s: float) -> None:
        """A job that can be seen is waited for without an end, unless there is one given."""
        if sight.status is not None:
            self._patience.progress(now_s=now_s)
        self._patience.wait_for(sight.lacks, now_s=now_s)
        if self._ends_s is not None and now_s >= self._ends_s:
            state = "out of sight" if sight.status is None else sight.status.state
            why = f": {sight.lacks}" if sight.lacks else ""
            raise StoppedError(f"job {self._job} is {state} after {now_s - self._began_s:.0f} s{why}")


def summarize(sight: Sight) -> Summary:
    """What the job came to, or how far it is."""
    assert sight.status is not None
    status = sight.status
    exit_code = status.exit_code if sight.is_over else None
    return Summary(
        job=status.job,
        state=status.state,
        reason=status.reason,
        exit_code=ExitCode.NOT_FINISHED if exit_code is None else exit_code,
        output=status.output or "",
        counts=sight.counts,
        elapsed_s=None,
    )
