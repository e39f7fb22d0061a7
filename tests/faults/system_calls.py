"""What a process asks of its disk, call by call: recorded by strace, read back as steps. For tests of power cuts.

Steps name files by their path; paths outside `root` are left out.
"""

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

STRACE = shutil.which("strace")
_CALLS = "openat,mkdir,write,pwrite64,fsync,fdatasync,ftruncate,rename,link,unlink,unlinkat,rmdir,close"
AT_END = -1
_LONGEST_BYTES = 64 * 1024 * 1024
_FINISHED = re.compile(rb"(\d+) +(\w+)\((.*)\) += (-?\d+).*")
_UNFINISHED = re.compile(rb"(\d+) +(\w+\(.*) <unfinished \.\.\.>")
_RESUMED = re.compile(rb"(\d+) +<\.\.\. \w+ resumed>(.*)")
_ARGUMENT = re.compile(rb'"((?:\\x[0-9a-f]{2})*)"|(?:(-?\d+|AT_FDCWD)<((?:\\x[0-9a-f]{2})*)>[^,]*)|([^",]+)')


@dataclass(frozen=True)
class Step:
    """One call that succeeded. `kind`: create, write, truncate, sync, rename, link, remove, mkdir, or mark."""

    kind: str
    path: Path
    data: bytes = b""
    """What was written; of a mark, its text."""
    offset: int = 0
    """Where, `AT_END` behind all that is there; of `truncate`, the new length."""
    target: Path = Path()
    """Of `rename` and `link`, the new path."""


def record(command: Sequence[str], *, trace: Path, env: Mapping[str, str], timeout_s: float) -> int:
    """Run `command` and write each of its calls to `trace`; returns its exit code."""
    assert STRACE is not None
    how = ("-f", "-y", "-xx", "-s", str(_LONGEST_BYTES), "--seccomp-bpf", "-e", f"trace={_CALLS}", "-o", str(trace))
    ended = subprocess.run([STRACE, *how, *command], env=env, timeout=timeout_s, check=False)
    return ended.returncode


def read_steps(trace: Path, *, root: Path, marks: Path) -> list[Step]:
    """The steps below `root` in `trace`, in the order in which they ended, and what was written to `marks`."""
    reader = _Reader(root=root, marks=marks)
    return [step for name, arguments, result in _calls(trace) for step in reader.read(name, arguments, result)]


def _calls(trace: Path) -> Iterator[tuple[str, list[bytes], int]]:
    """Name, arguments and result of each call that succeeded."""
    begun: dict[bytes, bytes] = {}
    for line in trace.read_bytes().splitlines():
        if found := _UNFINISHED.fullmatch(line):
            begun[found[1]] = found[2]
            continue
        if found := _RESUMED.fullmatch(line):
            line = found[1] + b" " + begun.pop(found[1]) + found[2]
        if (found := _FINISHED.fullmatch(line)) and int(found[4]) >= 0:
            yield found[2].decode(), _arguments(found[3]), int(found[4])


def _arguments(text: bytes) -> list[bytes]:
    """Strings as their bytes, descriptors as the number and, after a NUL, the path; all else as it is."""
    found = []
    for string, descriptor, path, other in _ARGUMENT.findall(text):
        if descriptor:
            found.append(descriptor + b"\0" + _unhex(path))
        elif other.strip():
            found.append(other.strip())
        elif not other:
            found.append(_unhex(string))
    return found


def _unhex(text: bytes) -> bytes:
    return bytes.fromhex(text.decode().replace("\\x", ""))


class _Reader:
    """Calls become steps; remembers where each descriptor stands, for plain writes."""

    def __init__(self, *, root: Path, marks: Path) -> None:
        self._root, self._marks = root, marks
        self._positions: dict[bytes, int] = {}

    def read(self, name: str, arguments: list[bytes], result: int) -> Iterator[Step]:
        """The steps of one call: none, one, or two."""
        if name in ("write", "pwrite64", "fsync", "fdatasync", "ftruncate", "close"):
            descriptor, _, raw = arguments[0].partition(b"\0")
            path = Path(raw.decode().removesuffix(" (deleted)"))
            yield from self._of_descriptor(name, descriptor, path, arguments[1:], result)
        elif name == "openat":
            yield from self._opened(_at(*arguments[:2]), arguments[2], result)
        elif name in ("rename", "link"):
            yield from self._inside(Step(name, _path(arguments[0]), target=_path(arguments[1])))
        elif name == "unlinkat":
            yield from self._inside(Step("remove", _at(*arguments[:2])))
        else:
            yield from self._inside(Step("mkdir" if name == "mkdir" else "remove", _path(arguments[0])))

    def _of_descriptor(
        self, name: str, descriptor: bytes, path: Path, rest: list[bytes], result: int
    ) -> Iterator[Step]:
        if name == "close":
            self._positions.pop(descriptor, None)
        elif name == "write" and path == self._marks:
            yield Step("mark", path, rest[0])
        elif name == "write" and descriptor in self._positions:
            at = self._positions[descriptor]
            yield from self._inside(Step("write", path, rest[0][:result], at))
            self._positions[descriptor] = at if at == AT_END else at + result
        elif name == "pwrite64":
            yield from self._inside(Step("write", path, rest[0][:result], int(rest[2])))
        elif name == "ftruncate":
            yield from self._inside(Step("truncate", path, offset=int(rest[0])))
        elif name in ("fsync", "fdatasync"):
            yield from self._inside(Step("sync", path))

    def _opened(self, path: Path, flags: bytes, result: int) -> Iterator[Step]:
        self._positions[b"%d" % result] = AT_END if b"O_APPEND" in flags else 0
        if b"O_CREAT" in flags:
            yield from self._inside(Step("create", path))
        if b"O_TRUNC" in flags:
            yield from self._inside(Step("truncate", path))

    def _inside(self, step: Step) -> Iterator[Step]:
        if self._root in step.path.parents or step.path == self._root:
            yield step


def _path(raw: bytes) -> Path:
    path = Path(raw.decode())
    assert path.is_absolute(), path
    return path


def _at(folder: bytes, name: bytes) -> Path:
    """The path of `name` as it is opened from the folder of a descriptor, or from the current one."""
    return Path(folder.partition(b"\0")[2].decode()) / name.decode()
