"""A job one part of which lies on a small disk: how it is stopped by that, what it says, and how it goes on."""

import re
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from producer.job_directory import JobDirectory
from tests.faults.scene import SIMULATED, Scene
from tests.faults.small_disk import SmallDisk
from tests.processes import producer_command, run_producer, started, started_worker
from tests.servers import Server

ROWS = 80
PARTS = ("journal", "ordered file")
STOP_S = 60.0
"""Redis may refuse writes for 10 s, and a run's own worker may drain for 25 s; all else stops a job at once."""
MAKE_ROOM = re.compile(r"make room: the job will write about (\d+) MiB more there")


class DiskScene(Scene):
    """A job to come, everything on the big disk."""

    def __init__(self, server: Server, folder: Path) -> None:
        server.client().flushall(asynchronous=False)
        super().__init__(server, folder, rows=ROWS, url=server.url, source=None)

    def put(self, part: str, disk: SmallDisk) -> None:
        """Let the journal (the whole job directory) or the ordered file lie on `disk`."""
        if part == "journal":
            self.jobs = disk.path / "jobs"
        else:
            self.output = disk.path / "out.jsonl"

    def place(self, part: str) -> Path:
        """Where that part is."""
        return self.directory.journal_path if part == "journal" else self.output

    @property
    def directory(self) -> JobDirectory:
        """Of the job, once there is one."""
        return JobDirectory.open(self.jobs, self.job)

    @contextmanager
    def working(self, *more: object, prefix: tuple[str, ...] = ()) -> Iterator[None]:
        """A fleet's worker and the job's run, with its first results in the file; `prefix` may stop it before."""
        run = started([*prefix, *producer_command(*self.arguments(*more))], log=self.run_log)
        others = str(self.folder / "cache")  # no worker that another test has left behind
        worker = started_worker(self.server, *SIMULATED, log=self.worker_log, XDG_CACHE_HOME=others)
        with worker as self.worker, run as self.run:
            if not prefix:
                self.reach(16)
            yield

    def interrupt(self) -> None:
        """Ctrl-C, twice."""
        self.run.send_signal(signal.SIGINT)
        self.run.send_signal(signal.SIGINT)
        assert self.run.wait(20) == 130, self.words()

    def kept(self) -> bytes:
        """The ordered file, which must not be torn."""
        kept = self.output.read_bytes()
        assert kept.endswith(b"\n"), "torn"
        return kept

    def resume(self) -> "subprocess.CompletedProcess[str]":
        """`producer resume` of the job."""
        return run_producer("resume", self.job, "--jobs", self.jobs, "--redis-url", self.url)

    def check_stopped(self, *, said: str, where: Path | str, is_full: bool = True) -> None:
        """The run ended with 3, in one clear line and the way to go on."""
        assert self.run.wait(STOP_S) == 3, self.words()
        check_talk(self.run_log.read_text(), said=said, where=where, is_full=is_full, job=self.job)

    def check_goes_on(self, *, kept: bytes) -> None:
        """Resumed, the job comes to the same results as one that nothing disturbs; durable lines have not changed."""
        resumed = self.resume()
        assert resumed.returncode == 0, resumed.stderr
        self.check_kept(kept)

    def check_kept(self, kept: bytes) -> None:
        """All results, as undisturbed, and `kept` as it was."""
        assert self.output.read_bytes().startswith(kept), "a line that was durable has changed"
        self.check_results()

    def blamed(self) -> list[str]:
        """Causes of the losses in the journal that blame somebody."""
        with closing(sqlite3.connect(self.directory.journal_path)) as journal:
            rows = journal.execute("SELECT cause FROM loss").fetchall()
        return [cause for (cause,) in rows if cause in ("self", "outside")]


def check_talk(talk: str, *, said: str, where: Path | str, is_full: bool, job: str) -> None:
    """What a stopped command said: one line, how much room is needed where that is what lacks, and how to go on."""
    ends = [line for line in talk.splitlines() if line.startswith("producer: ")]
    assert len(ends) == 1, talk
    assert said in ends[0], talk
    assert f"({where})" in ends[0], talk
    assert (MAKE_ROOM.search(ends[0]) is not None) == is_full, talk
    assert f"continue: producer resume {job}" in talk
    assert "Traceback" not in talk, talk
