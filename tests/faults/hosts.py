"""Hosts with a network between them, made of namespaces: one is cut off and comes back, one vanishes. Needs root.

with network(folder) as hosts:
    node = hosts.add("node7")                  # its own address, name, processes and home
    started(node.command(words), log=log)      # runs there
    hosts.cut(node); hosts.mend(node)          # its cable is out, and in again
    node.vanish()                              # every process there is killed, and nobody is left to tell of it

Nothing of it stands outside its namespaces: the kernel takes it all away when they end, also when the test is killed.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest

from tests.servers import VALKEY, Server
from tests.waiting import wait_until

PROGRAMS = ("unshare", "nsenter", "ip", "hostname")
NETWORK = "10.77.0"
_SWITCH = "switch"
_BOOT = 'set -eu; hostname "$0"; ip link set lo up; echo made; exec cat'
_OWN = ("--net", "--uts", "--pid", "--mount")


class NoHostsError(Exception):
    """Hosts cannot be made here."""


class Host:
    """One of them."""

    def __init__(self, name: str, address: str, home: Path, *, init: psutil.Process) -> None:
        self.name = name
        self.address = address
        self.home = home
        self.init = init

    def command(self, words: Sequence[object]) -> list[str]:
        """`words` to be run there, with a home and a cache of its own."""
        own = [f"HOME={self.home}", f"XDG_CACHE_HOME={self.home / 'cache'}"]
        return ["nsenter", "--target", str(self.init.pid), *_OWN, "env", *own, *map(str, words)]

    def write(self, name: str, text: str) -> Path:
        """A file in its home, for its owner alone."""
        path = self.home / name
        path.write_text(text)
        path.chmod(0o600)
        return path

    def vanish(self) -> None:
        """Kill every process there at once."""
        self.init.kill()
        wait_until(lambda: not self.init.is_running(), timeout_s=10, description=f"all of {self.name} is gone")


class Network:
    """All of them, each with a cable to one switch, which is a host without an address."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self._switch = self._boot(_SWITCH, "")
        self._set("link", "add", _SWITCH, "type", "bridge")
        self._set("link", "set", _SWITCH, "up")
        self._hosts = 0

    def add(self, name: str) -> Host:
        """One more."""
        self._hosts += 1
        host = self._boot(name, f"{NETWORK}.{self._hosts}")
        peer = ("peer", "name", "eth0", "netns", str(host.init.pid))
        self._set("link", "add", name, "type", "veth", *peer)
        self._set("link", "set", name, "master", _SWITCH, "up")
        _run(host.command(["ip", "address", "add", f"{host.address}/24", "dev", "eth0"]))
        _run(host.command(["ip", "link", "set", "eth0", "up"]))
        return host

    def cut(self, host: Host) -> None:
        """Let nothing through to it or from it; both sides see silence."""
        self._set("link", "set", host.name, "down")

    def mend(self, host: Host) -> None:
        """Let everything through again."""
        self._set("link", "set", host.name, "up")

    def _set(self, *words: str) -> None:
        _run(["nsenter", "--target", str(self._switch.init.pid), "--net", "ip", *words])

    def _boot(self, name: str, address: str) -> Host:
        home = self._folder / name
        home.mkdir()
        command = ["unshare", *_OWN, "--mount-proc", "--fork", "--kill-child", "sh", "-c", _BOOT, name]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = self._stack.enter_context(subprocess.Popen(command, **pipes))  # type: ignore[call-overload]
        self._stack.callback(process.kill)
        if process.stdout.readline() != b"made\n":
            raise NoHostsError(process.stderr.read().decode())
        (init,) = psutil.Process(process.pid).children()
        return Host(name, address, home, init=init)


class HostedServer(Server):
    """A server on one of the hosts, at its address and behind a password; tests ask it by its socket."""

    def __init__(self, host: Host, *, password: str) -> None:
        at = ("--bind", host.address, "--port", "6379", "--requirepass", password)
        super().__init__(VALKEY, host.home / "data", *at)
        wrapper = host.home / "server.sh"
        wrapper.write_text(f'#!/bin/sh\nexec {" ".join(host.command([self.binary]))} "$@"\n')
        wrapper.chmod(0o700)
        self.binary = str(wrapper)
        self.url = f"unix://:{password}@{self.socket}"
        self.address = f"redis://{host.address}:6379/0"
        """Where the other hosts find it; they have the password from a file."""


@contextmanager
def network(folder: Path) -> Iterator[Network]:
    """A network without hosts yet. Skips where none can be made."""
    missing = [program for program in PROGRAMS if not shutil.which(program)]
    if os.geteuid() != 0 or missing:
        pytest.skip(f"no hosts can be made here: root is needed, and {', '.join(missing or PROGRAMS)}")
    with ExitStack() as stack:
        try:
            made = Network(folder, stack)
        except (NoHostsError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no hosts can be made here: {error}")
        yield made


def _run(command: Sequence[str]) -> None:
    subprocess.run(command, check=True, capture_output=True)
