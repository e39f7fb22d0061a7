"""A disk without room, real and small, under all that a job writes: it stops, says how much is needed, and goes on."""

import re
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from producer.disk_need import needed_bytes
from producer.job_directory import JobDirectory
from tests.faults.scene import SIMULATED, Scene
from tests.faults.small_disk import SmallDisk
from tests.jobs import only_job
from tests.processes import producer_command, run_producer, started, started_worker
from tests.servers import VALKEY, Server
from tests.waiting import wait_until

ROWS = 120
STOP_S = 30.0
"""Redis may refuse writes for 10 s; all else stops a job at once."""
COPY_BYTES = 400_000
MAKE_ROOM = re.compile(r"make room: the job will write about (\d+) MiB more there")


@pytest.fixture
def scene(valkey_server: Server, tmp_path: Path) -> Scene:
    """A job to come, everything on the big disk."""
    valkey_server.client().flushall(asynchronous=False)
    return Scene(valkey_server, tmp_path, rows=ROWS, url=valkey_server.url, source=None)


@contextmanager
def working(scene: Scene, *more: object, prefix: tuple[str, ...] = ()) -> Iterator[Scene]:
    """A fleet's worker and the job's run, with its first results in the file."""
    run = started([*prefix, *producer_command(*scene.arguments(*more))], log=scene.run_log)
    others = str(scene.folder / "cache")  # no worker that another test has left behind
    worker = started_worker(scene.server, *SIMULATED, log=scene.worker_log, XDG_CACHE_HOME=others)
    with worker as scene.worker, run as scene.run:
        if not prefix:
            scene.reach(16)
        yield scene


def check_stopped(scene: Scene, *, said: str, where: Path | str, is_full: bool = True) -> None:
    """The run ended with 3, in one clear line and the way to go on; nothing is torn."""
    assert scene.run.wait(STOP_S) == 3, scene.words()
    check_talk(scene.run_log.read_text(), said=said, where=where, is_full=is_full, job=scene.job)
    assert scene.output.read_bytes().endswith(b"\n"), "torn"


def check_talk(talk: str, *, said: str, where: Path | str, is_full: bool, job: str) -> None:
    """What a stopped command said."""
    ends = [line for line in talk.splitlines() if line.startswith("producer: ")]
    assert len(ends) == 1, talk
    assert said in ends[0], talk
    assert f"({where})" in ends[0], talk
    assert (MAKE_ROOM.search(ends[0]) is not None) == is_full, talk
    assert f"continue: producer resume {job}" in talk
    assert "Traceback" not in talk, talk


def blamed(scene: Scene) -> list[str]:
    """Causes of the losses noted in the journal that blame somebody."""
    with closing(sqlite3.connect(JobDirectory.open(scene.jobs, scene.job).journal_path)) as journal:
        rows = journal.execute("SELECT cause FROM loss").fetchall()
    return [cause for (cause,) in rows if cause in ("self", "outside")]


def check_goes_on(scene: Scene, *, kept: bytes) -> None:
    """Resumed, the job comes to the same results as one that nothing disturbs; what was durable has not changed."""
    resumed = run_producer("resume", scene.job, "--jobs", scene.jobs, "--redis-url", scene.url)
    assert resumed.returncode == 0, resumed.stderr
    check_results(scene, kept=kept)


def check_results(scene: Scene, *, kept: bytes = b"") -> None:
    """Every result once, in order, as undisturbed."""
    assert scene.output.read_bytes().startswith(kept), "a line that was durable has changed"
    scene.check_results()


@pytest.mark.parametrize("which", ["journal", "ordered file"])
def test_full_disk_under_the_journal_or_the_ordered_file(scene: Scene, disk: SmallDisk, which: str) -> None:
    if which == "journal":
        scene.jobs = disk.path / "jobs"
    else:
        scene.output = disk.path / "out.jsonl"
    with working(scene, "--log-file", scene.folder / "producer.log"):
        disk.fill()
        assert disk.free_bytes() == 0
        directory = JobDirectory.open(scene.jobs, scene.job)
        where = directory.journal_path if which == "journal" else scene.output
        check_stopped(scene, said=f"the {which} cannot be written: the disk is full", where=where)
        kept = scene.output.read_bytes()
        still_full = run_producer("resume", scene.job, "--jobs", scene.jobs, "--redis-url", scene.url)
        assert still_full.returncode == 3, still_full.stderr
        check_talk(still_full.stderr, said="the disk is full", where=where, is_full=True, job=scene.job)
        assert scene.output.read_bytes() == kept, "the file changed on a full disk"
        asked = run_producer("get", scene.job, "r-0", "--jobs", scene.jobs)
        assert asked.stdout.encode() == kept.split(b"\n")[0] + b"\n", asked.stderr
        estimate = needed_bytes(directory, on=where)
        disk.make_room()
        check_goes_on(scene, kept=kept)
    grown = len(scene.output.read_bytes()) - len(kept)
    assert grown * (0.7 if which == "ordered file" else 0.1) < estimate < grown * 10


def test_full_disk_under_everything(scene: Scene, disk: SmallDisk) -> None:
    """Job directory, embedded server, its worker's log: the job's own words and its worker's stop nobody."""
    scene.jobs = disk.path / "jobs"
    command = ("run", scene.source, "--jobs", scene.jobs, "--batch-size", 4, *SIMULATED)
    with started(producer_command(*command), log=scene.run_log) as scene.run:
        wait_until(lambda: list(scene.jobs.glob("*/output/results.jsonl")), timeout_s=30, description="the job begins")
        scene.output = JobDirectory.open(scene.jobs, scene.job).output_path
        scene.reach(16)
        disk.fill()
        where = JobDirectory.open(scene.jobs, scene.job).journal_path
        check_stopped(scene, said="the journal cannot be written: the disk is full", where=where)
    kept = scene.output.read_bytes()
    still_full = run_producer(*command)
    assert still_full.returncode == 3, still_full.stderr
    assert MAKE_ROOM.search(still_full.stderr), still_full.stderr
    assert "Traceback" not in still_full.stderr
    disk.make_room()
    again = run_producer(*command)
    assert again.returncode == 0, again.stderr
    check_results(scene, kept=kept)


def test_a_collector_of_all_jobs_goes_on_by_itself(scene: Scene, disk: SmallDisk) -> None:
    """The one that stays (`--follow`) says what is full, and takes the job up again once there is room."""
    scene.jobs = disk.path / "jobs"
    enqueue = ["enqueue", *scene.arguments()[1:]]
    collect = ("collect", "--all", "--follow", "--jobs", scene.jobs, "--redis-url", scene.url)
    with started_worker(scene.server, *SIMULATED, log=scene.worker_log):
        enqueued = run_producer(*enqueue)
        assert enqueued.returncode == 0, enqueued.stderr
        with started(producer_command(*collect), log=scene.run_log) as scene.run:
            scene.reach(16)
            disk.fill()
            wait_until(
                lambda: "the journal cannot be written: the disk is full" in scene.run_log.read_text(),
                timeout_s=STOP_S,
                description="it says so",
            )
            assert MAKE_ROOM.search(scene.run_log.read_text())
            kept = scene.output.read_bytes()
            assert kept.endswith(b"\n")
            disk.make_room()
            wait_until(lambda: scene.durable() == ROWS, timeout_s=STOP_S, description="all results")
            assert scene.run.poll() is None
    check_results(scene, kept=kept)


@pytest.mark.parametrize("kind", ["file", "pipe"])
def test_full_disk_under_the_copy_of_the_input(scene: Scene, disk: SmallDisk, kind: str) -> None:
    """No job was made, so the same command begins it; a file's size is known, a pipe's is not."""
    scene.jobs = disk.path / "jobs"
    with scene.source.open("ab") as file:
        file.write(b"\n" * COPY_BYTES)
    size = scene.source.stat().st_size
    disk.fill(leave_bytes=COPY_BYTES // 2)
    command = ["run", "-", "-o", scene.output, "--jobs", scene.jobs, *SIMULATED]

    def run() -> subprocess.CompletedProcess[str]:
        plain = "cat" if kind == "pipe" else "exec"
        shell = f'{plain} < "$0" | "$@"' if kind == "pipe" else '"$@" < "$0"'
        words = ["sh", "-c", shell, str(scene.source), *producer_command(*command)]
        return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)

    refused = run()
    assert refused.returncode == 3, refused.stderr
    assert "the copy of the input cannot be written: the disk is full" in refused.stderr
    assert "Traceback" not in refused.stderr
    needed = f"make room for {size:,} bytes" if kind == "file" else "make room for more than "
    assert needed in refused.stderr
    disk.make_room()
    assert not list(scene.jobs.iterdir()), "a part of a job is left"
    assert run().returncode == 0
    check_results(scene)


def test_full_disk_under_the_log_stops_nothing(scene: Scene, disk: SmallDisk) -> None:
    log = disk.path / "producer.log"
    disk.fill()
    with working(scene, "--log-file", log):
        assert scene.run.wait(60) == 0, scene.words()
        assert disk.free_bytes() == 0
    talk = scene.run_log.read_text()
    assert talk.count(f"the log cannot be written: No space left on device ({log})") == 1, talk
    assert "Traceback" not in talk
    assert "Logging error" not in talk
    assert log.read_bytes() == b""
    check_results(scene)


def test_full_disk_under_an_embedded_server(scene: Scene, disk: SmallDisk) -> None:
    """A job with its server's folder on the small disk, as a mount there would do it."""
    command = ("run", scene.source, "-o", scene.output, "--jobs", scene.jobs, "--batch-size", 4, *SIMULATED)
    with started(producer_command(*command), log=scene.run_log) as scene.run:
        scene.reach(8)
        scene.run.send_signal(signal.SIGINT)
        scene.run.send_signal(signal.SIGINT)
        assert scene.run.wait(20) == 130, scene.words()
    data = JobDirectory.open(scene.jobs, scene.job).server_path
    data.rename(data.with_name("redis-before"))
    data.symlink_to(disk.path)
    scene.run_log.unlink()
    with started(producer_command(*command), log=scene.run_log) as scene.run:
        scene.reach(scene.durable() + 8)
        disk.fill()
        check_stopped(scene, said="the append-only file of Redis cannot be written", where=data)
        assert "No space left on device" in scene.run_log.read_text()
    kept = scene.output.read_bytes()
    disk.make_room()
    again = run_producer(*command)
    assert again.returncode == 0, again.stderr
    check_results(scene, kept=kept)


def test_full_disk_under_the_fleets_server(scene: Scene, disk: SmallDisk) -> None:
    """Its workers wait with what they hold, nobody is blamed, and all goes on when there is room."""
    server = scene.server = Server(VALKEY, disk.path / "valkey").start()
    scene.url = server.url
    try:
        with working(scene):
            disk.fill()
            check_stopped(scene, said="the append-only file of Redis cannot be written", where=server.url)
            assert "No space left on device" in scene.run_log.read_text()
            kept = scene.output.read_bytes()
            disk.make_room()
            check_goes_on(scene, kept=kept)
            assert scene.worker.poll() is None
            assert not scene.events("worker_died")
            assert not blamed(scene)
    finally:
        server.stop()


def test_a_limit_on_files_stops_a_job(scene: Scene) -> None:
    """EFBIG: the journal's write-ahead log grows beyond `ulimit -f`."""
    with working(scene, prefix=("prlimit", f"--fsize={300 * 1024}")):
        where = scene.jobs
        assert scene.run.wait(STOP_S) == 3, scene.words()
        where = JobDirectory.open(scene.jobs, scene.job).journal_path
        check_talk(
            scene.run_log.read_text(), said="the journal cannot be written", where=where, is_full=False, job=scene.job
        )
        kept = scene.output.read_bytes()
        assert kept.endswith(b"\n")
        check_goes_on(scene, kept=kept)


@pytest.mark.parametrize("which", ["journal", "ordered file"])
def test_failing_disk(scene: Scene, disk: SmallDisk, which: str) -> None:
    """EIO on every call, as of a disk that was pulled out; afterwards it has what was synced, and no more."""
    if not disk.can_fail:
        pytest.skip(f"{disk.kind} cannot be made to fail (a loop device is needed)")
    if which == "journal":
        scene.jobs = disk.path / "jobs"
    else:
        scene.output = disk.path / "out.jsonl"
    with working(scene, "--log-file", scene.folder / "producer.log"):
        job, kept = scene.job, scene.output.read_bytes()
        kept = kept[: kept.rfind(b"\n") + 1]
        disk.fail()
        assert scene.run.wait(STOP_S) == 3, scene.words()
        talk = scene.run_log.read_text()
        disk.repair()
        where = JobDirectory.open(scene.jobs, job).journal_path if which == "journal" else scene.output
        check_talk(talk, said=f"the {which} cannot be written", where=where, is_full=False, job=job)
        check_goes_on(scene, kept=kept)


@pytest.mark.parametrize("which", ["journal", "ordered file"])
def test_read_only_disk(scene: Scene, disk: SmallDisk, which: str) -> None:
    """EROFS: found so by a job that goes on."""
    if which == "journal":
        scene.jobs = disk.path / "jobs"
    else:
        scene.output = disk.path / "out.jsonl"
    with working(scene, "--log-file", scene.folder / "producer.log"):
        scene.run.send_signal(signal.SIGINT)
        scene.run.send_signal(signal.SIGINT)
        assert scene.run.wait(20) == 130, scene.words()
        kept = scene.output.read_bytes()
        disk.protect()
        refused = run_producer("resume", scene.job, "--jobs", scene.jobs, "--redis-url", scene.url)
        assert refused.returncode == 3, refused.stderr
        assert "Read-only file system" in refused.stderr
        assert str(disk.path) in refused.stderr
        assert f"continue: producer resume {only_job(scene.jobs)}" in refused.stderr
        assert "Traceback" not in refused.stderr
        disk.protect(read_only=False)
        check_goes_on(scene, kept=kept)


def test_full_disk_under_a_workers_own_files(scene: Scene, disk: SmallDisk) -> None:
    """The list of the host's workers, the worker's log and what it says on stderr: it works without any of them."""
    disk.fill()
    talk = scene.folder / "supervisor.log"
    flags = (*SIMULATED, "--log-file", disk.path / "worker.log")
    with started_worker(scene.server, *flags, log=talk, XDG_CACHE_HOME=str(disk.path / "cache")) as worker:
        run = run_producer(*scene.arguments())
        assert run.returncode == 0, run.stderr
        assert "the list of this host's workers cannot be written" in talk.read_text()
        assert "the log cannot be written: No space left on device" in talk.read_text()
        assert "Traceback" not in talk.read_text()
        worker.terminate()
        assert worker.wait(30) == 0, talk.read_text()
    assert disk.free_bytes() == 0
    check_results(scene)


def test_full_disk_under_all_that_is_said(scene: Scene, disk: SmallDisk) -> None:
    """Both commands' stderr: what is said is lost, and no more."""
    scene.run_log, worker_log = disk.path / "run.log", disk.path / "worker.log"
    with started_worker(scene.server, *SIMULATED, log=worker_log) as worker:
        with started(producer_command(*scene.arguments()), log=scene.run_log) as run:
            scene.run = run
            scene.reach(16)
            disk.fill()
            assert run.wait(60) == 0
        worker.terminate()
        assert worker.wait(30) == 0
    assert disk.free_bytes() == 0
    check_results(scene)
