"""A disk without room, real and small, under all that a job writes: it stops, says how much is needed, and goes on."""

import shutil
import subprocess
from pathlib import Path

import pytest

from producer.disk_need import needed_bytes
from tests.faults.disk_scene import MAKE_ROOM, PARTS, ROWS, STOP_S, DiskScene, check_talk
from tests.faults.scene import SIMULATED
from tests.faults.small_disk import SmallDisk
from tests.processes import producer_command, run_producer, started, started_worker
from tests.servers import VALKEY, Server
from tests.waiting import wait_until

COPY_BYTES = 400_000


@pytest.fixture
def scene(valkey_server: Server, tmp_path: Path) -> DiskScene:
    return DiskScene(valkey_server, tmp_path)


@pytest.mark.parametrize("part", PARTS)
def test_full_disk_under_the_journal_or_the_ordered_file(scene: DiskScene, disk: SmallDisk, part: str) -> None:
    scene.put(part, disk)
    with scene.working("--log-file", scene.folder / "producer.log"):
        disk.fill()
        assert disk.free_bytes() == 0
        where = scene.place(part)
        scene.check_stopped(said=f"the {part} cannot be written: the disk is full", where=where)
        kept = scene.kept()
        still_full = scene.resume()
        assert still_full.returncode == 3, still_full.stderr
        check_talk(still_full.stderr, said="the disk is full", where=where, is_full=True, job=scene.job)
        assert scene.output.read_bytes() == kept, "the file changed on a full disk"
        asked = run_producer("get", scene.job, "r-0", "--jobs", scene.jobs)
        assert asked.stdout.encode() == kept.split(b"\n")[0] + b"\n", asked.stderr
        estimate = needed_bytes(scene.directory, on=where)
        disk.make_room()
        scene.check_goes_on(kept=kept)
    grown = len(scene.output.read_bytes()) - len(kept)
    assert grown * (0.7 if part == "ordered file" else 0.1) < estimate < grown * 10


def test_full_disk_under_everything(scene: DiskScene, disk: SmallDisk) -> None:
    """Job directory, embedded server, its worker's log: the job's own words and its worker's stop nobody."""
    scene.jobs = disk.path / "jobs"
    command = ("run", scene.source, "--jobs", scene.jobs, "--batch-size", 4, *SIMULATED)
    with started(producer_command(*command), log=scene.run_log) as scene.run:
        wait_until(lambda: list(scene.jobs.glob("*/output/results.jsonl")), timeout_s=30, description="the job begins")
        scene.output = scene.directory.output_path
        scene.reach(16)
        disk.fill()
        where = scene.directory.journal_path
        scene.check_stopped(said="the journal cannot be written: the disk is full", where=where)
    kept = scene.kept()
    still_full = run_producer(*command)
    assert still_full.returncode == 3, still_full.stderr
    assert MAKE_ROOM.search(still_full.stderr), still_full.stderr
    assert "Traceback" not in still_full.stderr
    disk.make_room()
    again = run_producer(*command)
    assert again.returncode == 0, again.stderr
    scene.check_kept(kept)


def test_a_collector_of_all_jobs_goes_on_by_itself(scene: DiskScene, disk: SmallDisk) -> None:
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
            kept = scene.kept()
            disk.make_room()
            wait_until(lambda: scene.durable() == ROWS, timeout_s=STOP_S, description="all results")
            assert scene.run.poll() is None
    scene.check_kept(kept)


@pytest.mark.parametrize("kind", ["file", "pipe"])
def test_full_disk_under_the_copy_of_the_input(scene: DiskScene, disk: SmallDisk, kind: str) -> None:
    """The same command with the same input goes on; a file's size is known, a pipe's is not."""
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
    assert run().returncode == 0
    scene.check_results()


def test_full_disk_under_the_log_stops_nothing(scene: DiskScene, disk: SmallDisk) -> None:
    log = disk.path / "producer.log"
    disk.fill()
    with scene.working("--log-file", log):
        assert scene.run.wait(60) == 0, scene.words()
        assert disk.free_bytes() == 0
    talk = scene.run_log.read_text()
    assert talk.count(f"the log cannot be written: No space left on device ({log})") == 1, talk
    assert "Traceback" not in talk
    assert "Logging error" not in talk
    assert log.read_bytes() == b""
    scene.check_results()


def test_full_disk_under_an_embedded_server(scene: DiskScene, disk: SmallDisk) -> None:
    """A job with its server's folder on the small disk, as a mount there would do it."""
    command = ("run", scene.source, "-o", scene.output, "--jobs", scene.jobs, "--batch-size", 4, *SIMULATED)
    with started(producer_command(*command), log=scene.run_log) as scene.run:
        scene.reach(8)
        scene.interrupt()
    data = scene.directory.server_path
    shutil.copytree(data, disk.path, dirs_exist_ok=True)
    shutil.rmtree(data)
    data.symlink_to(disk.path)
    scene.run_log.unlink()
    with started(producer_command(*command), log=scene.run_log) as scene.run:
        scene.reach(scene.durable() + 8)
        disk.fill()
        scene.check_stopped(said="the append-only file of Redis cannot be written", where=data)
        assert "No space left on device" in scene.run_log.read_text()
    kept = scene.kept()
    disk.make_room()
    again = run_producer(*command)
    assert again.returncode == 0, again.stderr
    scene.check_kept(kept)
    assert not scene.blamed(), "its worker was told to leave, and could not say so in Redis"


def test_full_disk_under_the_fleets_server(scene: DiskScene, disk: SmallDisk) -> None:
    """Its workers wait with what they hold, nobody is blamed, and all goes on when there is room."""
    server = scene.server = Server(VALKEY, disk.path / "valkey").start()
    scene.url = server.url
    try:
        with scene.working():
            disk.fill()
            scene.check_stopped(said="the append-only file of Redis cannot be written", where=server.url)
            assert "No space left on device" in scene.run_log.read_text()
            kept = scene.kept()
            disk.make_room()
            scene.check_goes_on(kept=kept)
            assert scene.worker.poll() is None
            assert not scene.events("worker_died")
            assert not scene.blamed()
    finally:
        server.stop()


def test_full_disk_under_a_workers_own_files(scene: DiskScene, disk: SmallDisk) -> None:
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
    scene.check_results()


def test_full_disk_under_all_that_is_said(scene: DiskScene, disk: SmallDisk) -> None:
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
    scene.check_results()
