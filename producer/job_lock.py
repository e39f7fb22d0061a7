"""One collector a job: an OS lock on the job directory for the collector's life, and only where locks can be trusted.

The kernel drops the lock when its process ends, however it ends.
"""

import fcntl
import json
import os
import re
import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from common.errors import RefusedError

_NETWORK = re.compile(
    r"nfs4?|cifs|smb\w*|ncpfs|afs|ceph|lustre|beegfs|gpfs|glusterfs|orangefs"
    r"|fuse\.(sshfs|glusterfs|ceph|s3fs|gcsfuse|rclone|juicefs)"
)
"""Where SQLite's WAL (shared memory between processes) and locks are not safe; all other types are allowed."""
_TRIES = 5
_TRY_AGAIN_S = 0.02


class JobLock:
    """A lock file; `with` takes the lock at once or raises `RefusedError` naming the holder's host and pid.

    With `wait` it blocks until the lock is free: for what lasts milliseconds.
    """

    def __init__(self, path: Path, *, wait: bool = False) -> None:
        self._path = path
        self._mode = fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB
        self._descriptor: int | None = None

    def __enter__(self) -> Self:
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if not _lock(descriptor, self._mode):
            holder = _read_holder(descriptor)
            os.close(descriptor)
            raise RefusedError(
                f"this job is already being worked on by {holder}",
                where=str(self._path.parent),
                do="wait for it, or stop that process",
            )
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps({"host": socket.gethostname(), "pid": os.getpid()}).encode(), 0)
        self._descriptor = descriptor
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def read_holder(path: Path) -> str | None:
    """Who holds the lock file at `path` now, as `host H, pid N`; None when nobody does."""
    if not path.exists():
        return None
    with path.open("rb") as file:
        free = _lock(file.fileno(), fcntl.LOCK_SH | fcntl.LOCK_NB, tries=1)
        return None if free else _read_holder(file.fileno())


def check_local_disk(folder: Path) -> None:
    """Raises `RefusedError` when `folder`, or the nearest parent that exists, lies on a network file system."""
    mounts = [(mount.mountpoint, mount.fstype) for mount in psutil.disk_partitions(all=True)]
    kind = find_filesystem(folder.resolve(), mounts)
    if kind and _NETWORK.fullmatch(kind):
        raise RefusedError(
            f"the folder of jobs lies on a network file system ({kind}), where a journal is not safe",
            where=str(folder),
            do="set --jobs or BAKEHOUSE_JOBS to a folder on a local disk",
        )


def find_filesystem(path: Path, mounts: Iterable[tuple[str, str]]) -> str | None:
    """The type of the file system that holds `path`, from `mounts` (mount point, type), later ones on top."""
    best, kind = -1, None
    for point, fstype in mounts:
        if path.is_relative_to(point) and len(Path(point).parts) >= best:
            best, kind = len(Path(point).parts), fstype
    return kind


def _lock(descriptor: int, mode: int, *, tries: int = _TRIES) -> bool:
    """Whether the lock is got; it is tried again, since somebody who asks who holds it has it for a moment."""
    for left in reversed(range(tries)):
        try:
            fcntl.flock(descriptor, mode)
            return True
        except BlockingIOError:
            if left:
                time.sleep(_TRY_AGAIN_S)
    return False


def _read_holder(descriptor: int) -> str:
    """Who has written into a lock file that is held; asked again while that is nobody, or somebody who is gone."""
    said = "another process"
    for left in reversed(range(_TRIES)):
        with suppress(ValueError, KeyError):
            holder = json.loads(os.pread(descriptor, 4096, 0))
            said = f"host {holder['host']}, pid {holder['pid']}"
            if holder["host"] != socket.gethostname() or psutil.pid_exists(holder["pid"]):
                break
        if left:
            time.sleep(_TRY_AGAIN_S)
    return said
