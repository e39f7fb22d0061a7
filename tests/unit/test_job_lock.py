"""The job lock: one owner, named to the second, gone with its process; and no locks where they cannot be trusted."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from common.errors import RefusedError
from producer.job_lock import JobLock, check_local_disk, find_filesystem, read_holder
from tests.waiting import wait_until

HOLD = """
import signal, sys
from pathlib import Path
from producer.job_lock import JobLock
with JobLock(Path(sys.argv[1])):
    print("held", flush=True)
    signal.pause()
"""


def test_a_second_owner_is_refused_with_the_first_ones_pid_until_it_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(RefusedError, match=f"pid {holder.pid}"), JobLock(path):
        pass
    assert str(holder.pid) in str(read_holder(path))
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    wait_until(lambda: read_holder(path) is None, timeout_s=5, description="the lock is free")
    with JobLock(path):
        assert json.loads(path.read_bytes())["pid"] == os.getpid()
    assert read_holder(path) is None


def test_who_only_asks_keeps_nobody_out(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert read_holder(path) is None
    path.touch()
    with path.open("rb") as asker:
        fcntl.flock(asker.fileno(), fcntl.LOCK_SH)
        released = threading.Timer(0.03, fcntl.flock, (asker.fileno(), fcntl.LOCK_UN))
        released.start()
        with JobLock(path):
            assert str(os.getpid()) in str(read_holder(path))
        released.join()


def test_a_lock_without_a_name_in_it_still_refuses(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with JobLock(path):
        path.write_bytes(b"")
        with pytest.raises(RefusedError, match="another process"), JobLock(path):
            pass


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/home/me/jobs", "nfs4"), ("/home/me/fast/jobs", "ext4"), ("/homes", "overlay"), ("/over/x", "tmpfs")],
)
def test_the_file_system_is_that_of_the_nearest_mount(path: str, kind: str) -> None:
    mounts = [("/", "overlay"), ("/home", "nfs4"), ("/home/me/fast", "ext4"), ("/over", "cifs"), ("/over", "tmpfs")]
    assert find_filesystem(Path(path), mounts) == kind


def check_on(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("producer.job_lock.find_filesystem", lambda path, mounts: kind)
    check_local_disk(Path("/"))


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "lustre", "fuse.sshfs"])
def test_network_file_systems_are_refused(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RefusedError, match=kind):
        check_on(kind, monkeypatch)


@pytest.mark.parametrize("kind", ["tmpfs", "overlay", "ext4", "9p", "fuse.ext4", "nfsd"])
def test_all_other_file_systems_are_fine(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_on(kind, monkeypatch)
