"""A command whose input comes by standard input or a pipe: it copies it, while its job runs on the copy already."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from common.errors import StoppedError
from common.settings import Settings
from producer.input_file import STDIN
from producer.interrupts import Interrupts
from producer.job_directory import JobDirectory
from producer.job_input import JobInput
from producer.progress import Show
from producer.session import resumable
from producer.spooler import Spooler


@contextmanager
def copying(directory: JobDirectory, *, settings: Settings, show: Show) -> Iterator[Spooler | None]:
    """Copy the job's input while entered; None where there is nothing to copy, or no more.

    Raises `RefusedError` before the block when the input is not the one that this job has read so far.
    """
    copied = directory.input
    if not copied.spec.streamed or copied.end() is not None:
        yield None
        return
    job, until_idle_s = copied.spec.job, settings.until_idle_s or copied.spec.until_idle_s
    if copied.spec.input == STDIN and sys.stdin is not None and sys.stdin.isatty():
        show.say("requests are read from this terminal, one a line, until Ctrl-D")
    if copied.path.stat().st_size:
        show.say(f"what job {job} has read of {copied.described} must come again first")
    with resumable(job), Spooler(copied, until_idle_s=until_idle_s) as spooler:
        with Interrupts():
            spooler.await_compared()
        try:
            yield spooler
        except BaseException as error:
            _leave_rest(spooler, copied, show=show)
            if isinstance(error, StoppedError):
                spooler.check()  # what stopped the copying has most likely stopped all else
            raise
        _leave_rest(spooler, copied, show=show)  # a pause ends the command too


def await_copied(spooler: Spooler, directory: JobDirectory, *, show: Show) -> None:
    """Block until the whole input is copied. Raises what stopped it, `InterruptedJobError` at an interrupt."""
    if directory.input.end() is None:
        show.say(f"{directory.input.described} is read on, until its end")
    with resumable(directory.spec.job), Interrupts():
        spooler.wait()


def do_without_rest(directory: JobDirectory, *, show: Show) -> None:
    """Settle for what has come of an input whose copying was stopped, and say how much that is."""
    if (end := directory.input.end_early()) is not None:
        came = f"lines that came by {directory.input.described}, {end.lines:,} in all"
        show.say(f"the input of job {directory.spec.job} ended early: the {came}, are run; the rest never came")


def _leave_rest(spooler: Spooler, copied: JobInput, *, show: Show) -> None:
    """Copy no more, and say so where something may be left."""
    spooler.interrupt()
    if copied.end() is None:
        show.say(
            f"{copied.described} was not read to its end; the same command reads on when it gets the same input"
            " again from its beginning, producer resume runs only what has come"
        )
