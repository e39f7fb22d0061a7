"""`collect --all`: every unfinished job of a folder at once, a thread each, in one process."""

import threading
import time
from contextlib import ExitStack

from rich.console import Console

from common.errors import BakehouseError, ExitCode, RefusedError, StoppedError
from common.settings import Settings
from producer.disk_need import saying_how_much
from producer.interrupts import Interrupts
from producer.job_directory import JobDirectory
from producer.job_lock import JobLock, read_holder
from producer.jobs import all_jobs_lock, read_summary, summarize
from producer.metrics_port import metrics_port
from producer.progress import Lines
from producer.pulse import Pulse
from producer.session import continue_line, run_on_fleet
from producer.summary import print_summary

TURN_S = 0.2
AGAIN_S = 5.0
"""With `follow`, a job that stopped, or that another process had, is tried again after so long."""


class AllJobs:
    """The unfinished jobs of the settings' folder that go to the fleet's Redis."""

    def __init__(self, settings: Settings, console: Console, *, follow: bool) -> None:
        self._settings = settings
        self._console = console
        self._follow = follow
        self._threads: dict[str, threading.Thread] = {}
        self._codes: dict[str, int] = {}
        self._ended_at: dict[str, float] = {}
        self._passed: set[str] = set()
        """Jobs that are finished, or not for a fleet: looked at once."""
        self._interrupts = Interrupts()

    def run(self) -> int:
        """Block until none is left, with `follow` until interrupted; returns the worst exit code. Main thread only."""
        self._settings.jobs.mkdir(mode=0o700, parents=True, exist_ok=True)
        with ExitStack() as open_:
            open_.enter_context(metrics_port(self._settings))
            open_.enter_context(JobLock(all_jobs_lock(self._settings.jobs)))
            open_.enter_context(self._interrupts)
            open_.enter_context(self._interrupts.watched())
            self._work(open_.enter_context(Pulse()))
        if not self._codes:
            self._console.print(f"no unfinished job in {self._settings.jobs.absolute()}", markup=False, soft_wrap=True)
        return max(self._codes.values(), default=ExitCode.OK)

    def _work(self, pulse: Pulse) -> None:
        while not self._interrupts.count:
            with pulse.step():
                for directory in self._find():
                    self._start(directory)
                pulse.is_ready = True
            if not self._follow and not any(thread.is_alive() for thread in self._threads.values()):
                break
            time.sleep(TURN_S)
        for thread in self._threads.values():
            thread.join()

    def _find(self) -> list[JobDirectory]:
        """Jobs to start now."""
        now = time.monotonic()
        found = []
        for directory in JobDirectory.list_all(self._settings.jobs):
            job = directory.spec.job
            if job in self._passed:
                continue
            if job in self._threads:
                ended_at = self._ended_at.get(job)
                if not self._follow or ended_at is None or now - ended_at < AGAIN_S:
                    continue
                if read_holder(directory.lock_path) is not None:  # said already, and it may last: its input grows
                    continue
            if directory.spec.redis == "given" and not _is_finished(directory):
                found.append(directory)
            else:
                self._passed.add(job)
        return found

    def _start(self, directory: JobDirectory) -> None:
        job = directory.spec.job
        self._ended_at.pop(job, None)
        self._codes[job] = ExitCode.NOT_FINISHED
        self._threads[job] = threading.Thread(target=self._collect, args=(directory,), name=job, daemon=True)
        self._threads[job].start()

    def _collect(self, directory: JobDirectory) -> None:
        job = directory.spec.job
        show = Lines(self._console, name=job)
        try:
            directory.check_input_unchanged()
            with show, saying_how_much(directory):
                run = run_on_fleet(
                    directory,
                    settings=self._settings,
                    show=show,
                    interrupts=self._interrupts,
                    stays=self._follow,
                )
            summary = summarize(directory, run)
            print_summary(summary, self._console)
            self._codes[job] = summary.exit_code
        except RefusedError as error:
            self._codes[job] = error.exit_code
            show.say(str(error))
        except BakehouseError as error:
            self._codes[job] = error.exit_code
            show.say(f"{error}\n{continue_line(job)}")
        finally:
            self._ended_at[job] = time.monotonic()


def _is_finished(directory: JobDirectory) -> bool:
    """Whether its journal says so; one that cannot be read just now is left to its thread, which tells why."""
    try:
        return read_summary(directory) is not None
    except StoppedError:
        return False
