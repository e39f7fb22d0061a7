"""The host's file of living workers: after a kill -9 of a supervisor, the next one certifies what it left behind.

One small JSON file a worker under `~/.cache/bakehouse/workers/`, written when it is started, gone once its death is
certified. So work held by a killed `producer run` need not wait until its holds expire.
"""

import contextlib
import hashlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from worker.certificates import Cause

FOREIGN_KEPT_S = 24 * 3600
"""An entry is certified on whatever Redis the next supervisor is given, since an embedded one moves from run to run;
one that was noted on another Redis is kept so long for a supervisor there."""


class Entry(BaseModel):
    """One started worker, and what proves that a process is this one and no later one with its number."""

    model_config = ConfigDict(frozen=True)

    incarnation: str
    pid: int
    started: int
    """Clock ticks from boot to the process's start."""
    supervisor_pid: int
    supervisor_started: int
    host: str
    boot: str
    namespace: int
    """Of processes (inode): in another boot or namespace these numbers mean nothing."""
    server: str
    """Digest of the Redis URL, which may hold a password."""
    cause: Cause | None = None
    """Why it died, once its supervisor knows and has not certified it yet."""


class Roster:
    """The entries of this host. Raises `OSError` where the folder cannot be written."""

    def __init__(self, *, redis_url: str, folder: Path | None = None) -> None:
        self._folder = folder or default_folder()
        self._server = hashlib.sha256(redis_url.encode()).hexdigest()[:16]
        self._host = os.uname().nodename
        self._boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        self._namespace = os.stat("/proc/self/ns/pid").st_ino
        self._supervisor_started = started_ticks(os.getpid()) or 0

    def add(self, incarnation: str, pid: int) -> None:
        """Note a worker just started."""
        entry = Entry(
            incarnation=incarnation,
            pid=pid,
            started=started_ticks(pid) or 0,
            supervisor_pid=os.getpid(),
            supervisor_started=self._supervisor_started,
            host=self._host,
            boot=self._boot,
            namespace=self._namespace,
            server=self._server,
        )
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._put(entry)

    def conclude(self, incarnation: str, cause: Cause) -> None:
        """Note why a worker died, before its certificate: Redis may take none until this supervisor is gone too."""
        entry = Entry.model_validate_json(self._file(incarnation).read_bytes())
        self._put(entry.model_copy(update={"cause": cause}))

    def _put(self, entry: Entry) -> None:
        fresh = self._folder / f".{entry.incarnation}"
        try:
            fresh.touch(mode=0o600)
            fresh.write_text(entry.model_dump_json())
            fresh.rename(self._file(entry.incarnation))
        except OSError:
            with contextlib.suppress(OSError):
                fresh.unlink(missing_ok=True)
            raise

    def remove(self, incarnation: str) -> None:
        """Forget a worker whose death is certified."""
        self._file(incarnation).unlink(missing_ok=True)

    def abandoned(self) -> list[Entry]:
        """Workers of this host that are gone and whose supervisor is gone too, on whatever Redis they were."""
        return [entry for _, entry in self._entries() if self._is_gone(entry)]

    def settle(self, entry: Entry) -> None:
        """Forget an abandoned worker that is now certified, unless another Redis may still ask for it."""
        file = self._file(entry.incarnation)
        with contextlib.suppress(FileNotFoundError):  # another supervisor settled it
            if entry.server == self._server or time.time() - file.stat().st_mtime > FOREIGN_KEPT_S:
                file.unlink()

    def end_orphans(self, entry: Entry) -> list[int]:
        """SIGKILL to what is left of a gone worker's process group; returns the pids.

        Such is an engine core whose worker was killed while the engine was still starting.
        """
        if (entry.boot, entry.namespace) != (self._boot, self._namespace):
            return []
        orphans = [pid for pid in _group(entry.pid) if _is_of(entry.incarnation, pid)]
        for pid in orphans:
            os.kill(pid, signal.SIGKILL)
        return orphans

    def _entries(self) -> Iterator[tuple[Path, Entry]]:
        for file in sorted(self._folder.glob("*.json")):
            try:
                yield file, Entry.model_validate_json(file.read_bytes())
            except FileNotFoundError:
                continue
            except ValidationError:
                file.unlink(missing_ok=True)

    def _is_gone(self, entry: Entry) -> bool:
        """Neither worker nor supervisor lives; False for what another host or container may still run."""
        if entry.host != self._host:
            return False
        if entry.boot != self._boot:
            return True
        if entry.namespace != self._namespace:
            return False
        pairs = ((entry.pid, entry.started), (entry.supervisor_pid, entry.supervisor_started))
        return all(started_ticks(pid) != started for pid, started in pairs)

    def _file(self, incarnation: str) -> Path:
        return self._folder / f"{incarnation}.json"


def default_folder() -> Path:
    """`~/.cache/bakehouse/workers`, or under `XDG_CACHE_HOME`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bakehouse" / "workers"


def started_ticks(pid: int) -> int | None:
    """Clock ticks from boot to the start of process `pid`; None when there is none, or only its zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def _group(leader: int) -> list[int]:
    """The living processes of one process group."""
    members = []
    for folder in Path("/proc").glob("[0-9]*"):
        pid = int(folder.name)
        try:
            if os.getpgid(pid) == leader and started_ticks(pid) is not None:
                members.append(pid)
        except ProcessLookupError:
            continue
    return members


def _is_of(incarnation: str, pid: int) -> bool:
    """Whether process `pid` inherited the worker's environment, or is one of vLLM's, whose title overwrites it."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
        title = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return incarnation.encode() in environment or title.startswith(b"VLLM::")
