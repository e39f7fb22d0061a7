"""A disk that fails, one that is read-only, a limit on files: a job stops as on a full one, and goes on afterwards."""

from pathlib import Path

import pytest

from tests.faults.disk_scene import PARTS, DiskScene, check_talk
from tests.faults.freezing import frozen
from tests.faults.small_disk import SmallDisk
from tests.servers import Server

EIO = {"journal": "disk I/O error", "ordered file": "Input/output error"}
"""As SQLite calls it, and as the system does."""


@pytest.fixture
def scene(valkey_server: Server, tmp_path: Path) -> DiskScene:
    return DiskScene(valkey_server, tmp_path)


def test_a_limit_on_files(scene: DiskScene) -> None:
    """EFBIG: the journal's write-ahead log grows beyond `ulimit -f`."""
    with scene.working(prefix=("prlimit", f"--fsize={200 * 1024}")):
        assert scene.run.wait(30) == 3, scene.words()
        scene.check_stopped(said="the journal cannot be written", where=scene.place("journal"), is_full=False)
        assert "ulimit -f" in scene.run_log.read_text()
        scene.check_goes_on(kept=scene.kept())


@pytest.mark.parametrize("part", PARTS)
def test_failing_disk(scene: DiskScene, disk: SmallDisk, part: str) -> None:
    """EIO on every call, as of a disk that was pulled out; afterwards it has what was synced, and no more."""
    if not disk.can_fail:
        pytest.skip(f"{disk.kind} cannot be made to fail (a loop device is needed)")
    scene.put(part, disk)
    with scene.working("--log-file", scene.folder / "producer.log"):
        where, job, seen = scene.place(part), scene.job, scene.output.read_bytes()
        with frozen(scene.run.pid):  # the kernel may call a sync good that its shutdown of the disk has just overtaken
            disk.fail()
        assert scene.run.wait(30) == 3, scene.words()
        disk.repair()
        said = f"the {part} cannot be written: {EIO[part]}"
        check_talk(scene.run_log.read_text(), said=said, where=where, is_full=False, job=job)
        scene.check_goes_on(kept=seen[: seen.rfind(b"\n") + 1])


@pytest.mark.parametrize("part", PARTS)
def test_read_only_disk(scene: DiskScene, disk: SmallDisk, part: str) -> None:
    """EROFS, as found by a job that goes on."""
    scene.put(part, disk)
    with scene.working("--log-file", scene.folder / "producer.log"):
        scene.interrupt()
        kept = scene.kept()
        disk.protect()
        refused = scene.resume()
        assert refused.returncode == 3, refused.stderr
        assert "Read-only file system" in refused.stderr
        assert str(disk.path) in refused.stderr
        assert f"continue: producer resume {scene.job}" in refused.stderr
        assert "Traceback" not in refused.stderr
        disk.protect(read_only=False)
        scene.check_goes_on(kept=kept)
