"""A small disk of a test's own, on which real writes are refused: full (ENOSPC), failing (EIO), read-only (EROFS).

An ext4 file system on a loop device, since such a one keeps a journal and gives out its blocks late, as most disks do;
tmpfs where there is no loop device, which can be full and read-only and cannot fail. Both need root.
"""

import errno
import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.waiting import wait_until

MIB = 1024 * 1024
_SHUTDOWN = 0x8004587D
"""EXT4_IOC_SHUTDOWN: from now on each call fails by EIO, as on a disk that was pulled out."""
_WITHOUT_FLUSH = 2
_BALLAST_BYTES = 64 * 1024


class NoSmallDiskError(Exception):
    """Nothing can be mounted here."""


class SmallDisk:
    """One mounted file system at `path`. Everything else on the machine is left alone."""

    def __init__(self, path: Path, *, size_bytes: int = 16 * MIB) -> None:
        self.path = path
        self._size_bytes = size_bytes
        self._image = path.with_name(path.name + ".img")
        self._ballast = path / "ballast"
        self.kind = ""
        """`ext4` or `tmpfs`, once mounted."""

    def mount(self) -> None:
        """Make it and mount it. Raises `NoSmallDiskError` where neither kind can be had."""
        self.path.mkdir(exist_ok=True)
        with self._image.open("wb") as image:
            image.truncate(self._size_bytes)
        for kind in ("ext4", "tmpfs"):
            self.kind = kind
            if kind == "tmpfs" or self._format():
                try:
                    self._mount()
                    return
                except (OSError, subprocess.CalledProcessError):
                    continue
        raise NoSmallDiskError

    def unmount(self) -> None:
        """Take it away; it must not be in use any more."""
        subprocess.run(["umount", self.path], check=True)

    def free_bytes(self) -> int:
        """What can still be written to it."""
        facts = os.statvfs(self.path)
        return facts.f_bavail * facts.f_frsize

    def fill(self, *, leave_bytes: int = 0) -> None:
        """Write to it until the kernel says ENOSPC to a single byte; then give back `leave_bytes`."""
        block, taken = bytes(_BALLAST_BYTES), 0
        descriptor = os.open(self._ballast, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            while taken < 2 * self._size_bytes:
                try:
                    taken += os.write(descriptor, block)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    if len(block) == 1:
                        os.ftruncate(descriptor, taken - leave_bytes)
                        return
                    block = block[: len(block) // 2]
            raise AssertionError(f"{taken} bytes fit on a disk of {self._size_bytes}")
        finally:
            os.fsync(descriptor)
            os.close(descriptor)

    def make_room(self) -> None:
        """Remove what `fill` wrote."""
        self._ballast.unlink()
        wait_until(lambda: self.free_bytes() > MIB, timeout_s=10, description="there is room")

    def fail(self) -> None:
        """Let every call on it fail by EIO; what was not synced is lost. `repair` ends that."""
        assert self.can_fail
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, _SHUTDOWN, struct.pack("I", _WITHOUT_FLUSH))
        finally:
            os.close(descriptor)
        with pytest.raises(OSError, match="Input/output error"):
            (self.path / "probe").touch()

    @property
    def can_fail(self) -> bool:
        """Whether `fail` works: not with tmpfs."""
        return self.kind == "ext4"

    def repair(self) -> None:
        """Unmount it and mount it again, after `fail`: what was synced is there. It must not be in use."""
        self.unmount()
        self._mount()

    def protect(self, *, read_only: bool = True) -> None:
        """Make it read-only, or writable again. No file of it may be open for writing."""
        mode = "ro" if read_only else "rw"
        subprocess.run(["mount", "-o", f"remount,{mode}", self.path], check=True)

    def _format(self) -> bool:
        if shutil.which("mkfs.ext4") is None:
            return False
        command = ["mkfs.ext4", "-q", "-F", "-m", "0", "-b", "1024", str(self._image)]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def _mount(self) -> None:
        if self.kind == "ext4":
            command = ["mount", "-t", "ext4", "-o", "loop", str(self._image), str(self.path)]
        else:
            command = ["mount", "-t", "tmpfs", "-o", f"size={self._size_bytes}", "tmpfs", str(self.path)]
        subprocess.run(command, capture_output=True, check=True)


@contextmanager
def mounted(path: Path, *, size_bytes: int = 16 * MIB) -> Iterator[SmallDisk]:
    """A small disk at `path` for the time of the block. Raises `NoSmallDiskError`."""
    disk = SmallDisk(path, size_bytes=size_bytes)
    disk.mount()
    try:
        yield disk
    finally:
        disk.unmount()
