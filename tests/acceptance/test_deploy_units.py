"""What docs/operations.md says of bare nodes, run as written on a private host: its commands, its units, a job.

systemd cannot run there: each unit's command is run as its user, in its environment, with its credential. The program
is this environment, put where pip would put it.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.faults.private_host import PrivateHost, private_host
from tests.jobs import check_whole, write_requests
from tests.processes import ROOT, started
from tests.systemd_units import SYSTEMD, command_of, read_unit, variables_of
from tests.waiting import wait_until

pytestmark = pytest.mark.deploy

ROWS = 40
PASSWORD = "5ecret-of-redis"
HEAD = "head.example"
CREDENTIALS = "/run/credentials"
NOBODY = 65534
PATIENCE_S = 120.0
OWN_FOLDERS = """
set -eu
cp -a /etc /tmp/etc; mount --bind /tmp/etc /etc
mount -t tmpfs tmpfs /opt
mount -t tmpfs tmpfs /var/lib
mkdir -p /opt/bakehouse/bin /root/project
ln -s "$ROOT/examples" /root/project/examples
"""
"""What the commands write must not reach the machine of the test."""


def documented() -> tuple[str, str]:
    """How a node is set up, and how a job is run."""
    section = (ROOT / "docs" / "operations.md").read_text().split("\n### Bare nodes\n")[1]
    return section.split("```")[1], section.split("```")[3]


def set_up() -> str:
    """The commands of the head and of a node in one; the program and systemd are not to be had."""
    kept = [line.partition("  #")[0] for line in documented()[0].splitlines()]
    unheard = ("python3 -m venv", "systemctl")
    script = "\n".join(line for line in kept if not line.startswith(unheard))
    script = script.replace("worker.env", "*.env")
    return script.replace("bakehouse-worker.service", "*.service") + f"\ncp {SYSTEMD}/redis.conf /etc/bakehouse/\n"


class Node:
    """The head, and a node with a worker, on one host."""

    def __init__(self, host: PrivateHost, logs: Path) -> None:
        self._host = host
        self._logs = logs

    def run(self, script: str, *, folder: str = "/root/project") -> str:
        """What `script` prints, run by root in a copy of the project."""
        variables = {"HOME": "/root", "ROOT": str(ROOT)}
        command = self._host.command(["sh", "-euc", f"cd {folder}\n{script}"], environment=variables)
        ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def put(self, name: str, text: str) -> None:
        """A file in that folder."""
        self._host.put(f"/root/project/{name}", text)

    def install(self) -> None:
        """This environment's commands at the documented place."""
        for program in ("producer", "worker"):
            text = f'#!/bin/sh\nexec {sys.executable} -P -m {program}.cli "$@"\n'
            self._host.put(f"/opt/bakehouse/bin/{program}", text, mode=0o755)

    @contextmanager
    def redis(self) -> Iterator[None]:
        """The distribution's server as a user of its own, its configuration as documented."""
        text = f"include /etc/bakehouse/redis.conf\nrequirepass {PASSWORD}\nbind 127.0.0.1\n"
        self._host.put("/etc/redis-of-the-test.conf", text)
        words = ["redis-server", "/etc/redis-of-the-test.conf", "--dir", "/data"]
        log = self._logs / "redis.log"
        with started(self._host.command(words, user=NOBODY), log=log) as process:
            wait_until(
                lambda: process.poll() is not None or "Ready to accept" in log.read_text(),
                timeout_s=PATIENCE_S,
                description="Redis is up",
            )
            assert process.poll() is None, "Redis has ended"
            yield

    @contextmanager
    def unit(self, name: str, **changed: str) -> Iterator[None]:
        """Unit `name` as systemd would run it; `changed`: words of its command that are others here."""
        read = read_unit(SYSTEMD / f"{name}.service")
        user = int(self.run(f"id -u {read['User'][0]}"))
        (credential,) = read["LoadCredential"]
        own, source = credential.split(":")
        folder = f"{CREDENTIALS}/{name}"
        self.run(f"mkdir -p {folder}; install -m 400 -o {user} {source} {folder}/{own}")
        variables = {key: text.replace("%d", folder) for key, text in variables_of(read).items()}
        words = [changed.get(word, word) for word in command_of(read)]
        with started(
            self._host.command([word for word in words if word], user=user, environment=variables),
            log=self._logs / f"{name}.log",
        ):
            yield


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """Set up as documented; nothing runs."""
    if not shutil.which("redis-server"):
        pytest.skip("redis-server is not installed (Debian: apt-get install redis-server)")
    with private_host(tmp_path, names=[HEAD]) as host:
        made = Node(host, tmp_path)
        made.run(OWN_FOLDERS, folder="/")
        made.install()
        made.put("redis_password", PASSWORD + "\n")
        made.run(set_up())
        yield made


def test_the_documented_commands_run_a_job(node: Node, tmp_path: Path) -> None:
    simulated = {"--model=Qwen/Qwen3-8B": "--engine=sim", "--gpus=all": ""}
    with ExitStack() as running:
        running.enter_context(node.redis())
        running.enter_context(node.unit("bakehouse-collector"))
        running.enter_context(node.unit("bakehouse-worker", **simulated))
        node.put("requests.jsonl", write_requests(tmp_path / "in.jsonl", ROWS, model="qwen3-8b").read_text())
        node.run(documented()[1])
        (tmp_path / "out.jsonl").write_text(node.run("cat results.jsonl"))
    check_whole(tmp_path / "out.jsonl", ROWS)
