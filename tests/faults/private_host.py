"""A host of its own for a test: network, processes and the folders of our containers, made of namespaces. Needs root.

Everything on it is killed by the kernel when it ends, also when the test is killed.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.processes import ROOT
from tests.waiting import wait_until

PROGRAMS = ("unshare", "nsenter", "setpriv", "chroot", "mount", "ip")
OWN_FOLDERS = ("run/secrets", "data", "jobs", "models", "prometheus", "tmp")
PATH = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin"
_MAKE = """
set -eu
mount --make-rprivate /
mount -t tmpfs -o mode=0755 tmpfs "$NEW"
for entry in /*; do
  name=${entry#/}
  case " run data jobs models prometheus tmp proc " in *" $name "*) continue;; esac
  if [ -L "$entry" ]; then cp -P "$entry" "$NEW/"
  elif [ -d "$entry" ]; then mkdir "$NEW/$name"; mount --rbind "$entry" "$NEW/$name"; fi
done
mkdir "$NEW/proc"; mount -t proc proc "$NEW/proc"
for name in $FOLDERS; do mkdir -p "$NEW/$name"; chmod 1777 "$NEW/$name"; done
mount -t tmpfs -o mode=0755 tmpfs "$NEW/root"
for path in $OPEN; do mkdir -p "$NEW$path"; mount --rbind "$path" "$NEW$path"; done
mount --bind "$HOSTS" "$NEW/etc/hosts"
if [ -d /etc/prometheus ]; then mount -t tmpfs -o mode=0755 tmpfs "$NEW/etc/prometheus"; fi
ip link set lo up
echo made
exec cat
"""


class PrivateHost:
    """Commands run on it by `command`; what stands in `root` is seen there as `/`."""

    def __init__(self, init: int, root: Path) -> None:
        self._enter = ["nsenter", "--target", str(init), "--mount", "--net", "--pid", "chroot", str(root)]
        self.seen = Path(f"/proc/{init}/root{root}")
        """Its `/`, as this process sees it."""

    def command(
        self,
        words: Sequence[str],
        *,
        user: int = 0,
        groups: Sequence[int] = (),
        environment: Mapping[str, str] | None = None,
    ) -> list[str]:
        """`words` to be run there as `user` in an environment of `environment` alone."""
        group = ["--groups", ",".join(map(str, groups))] if groups else ["--clear-groups"]
        who = ["setpriv", "--reuid", str(user), "--regid", str(user), *group] if user else []
        variables = {"PATH": PATH, **(environment or {})}
        return [*self._enter, *who, "env", "-i", *(f"{name}={value}" for name, value in variables.items()), *words]

    def put(self, path: str, text: str, *, mode: int = 0o644, group: int = 0) -> None:
        """A file there."""
        there = self.seen / path.lstrip("/")
        there.write_text(text)
        os.chown(there, 0, group)
        there.chmod(mode)


@contextmanager
def private_host(folder: Path, *, names: Sequence[str]) -> Iterator[PrivateHost]:
    """A host on which `names` are this host itself. Skips where it cannot be had."""
    missing = [program for program in PROGRAMS if not shutil.which(program)]
    if os.geteuid() != 0 or missing:
        pytest.skip(f"no private host can be made here: root is needed, and {', '.join(missing or PROGRAMS)}")
    new, hosts = folder / "root", folder / "hosts"
    new.mkdir()
    hosts.write_text(f"127.0.0.1 localhost {' '.join(names)}\n")
    hidden = {"root", *(name.partition("/")[0] for name in OWN_FOLDERS)}
    opened = [path for path in {ROOT, Path(sys.base_prefix), Path(sys.prefix)} if path.parts[1] in hidden]
    variables = {"NEW": new, "HOSTS": hosts, "FOLDERS": " ".join(OWN_FOLDERS), "OPEN": " ".join(map(str, opened))}
    unshare = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "sh", "-c", _MAKE]
    with subprocess.Popen(
        unshare,
        env={**os.environ, **{name: str(value) for name, value in variables.items()}},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        if process.stdout.readline() != b"made\n":
            pytest.skip(f"no private host can be made here: {process.stderr.read().decode()}")
        (init,) = psutil.Process(process.pid).children()
        try:
            yield PrivateHost(init.pid, new)
        finally:
            process.kill()
            wait_until(lambda: not init.is_running(), timeout_s=10, description="all of the host is gone")
