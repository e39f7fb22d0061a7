"""A fleet whose every secret is planted: each command under a Redis user of its own, with all they leave behind."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.flower_pages import Pages
from tests.processes import descendants, environment, live_workers, producer_command, started, worker_command
from tests.prometheus_server import free_port
from tests.scraping import get
from tests.secured import PASSWORDS, SecuredServer
from tests.waiting import wait_until

MODEL = "oven"
LOGIN = "cook:5ecret-of-the-c00k"
TOKEN = "5ecret-t0ken-of-the-hub"
WRONG = "5ecret-that-is-wr0ng"
SECRETS = (*PASSWORDS.values(), LOGIN.partition(":")[2], TOKEN, WRONG)
SIMULATED = ("--engine", "sim", "--model", MODEL, "--sim-seconds", "0.005", "--metrics-port", "0")


class SecuredFleet:
    """Its commands, and whatever they have shown."""

    def __init__(self, server: SecuredServer, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self.jobs = folder / "jobs"
        self.said: dict[str, str] = {}
        """What was shown to somebody, by who showed it."""

    def environment(self, user: str, password: str | None = None) -> dict[str, str]:
        """What a command of `user` is given: never a secret itself, only files with them."""
        return {
            "BAKEHOUSE_REDIS_URL": self.server.url_of(user),
            "BAKEHOUSE_REDIS_PASSWORD_FILE": str(self.secret(password or PASSWORDS[user])),
            "BAKEHOUSE_JOBS": str(self.jobs),
            "HF_TOKEN_FILE": str(self.secret(TOKEN)),
            "FLOWER_BASIC_AUTH_FILE": str(self.secret(LOGIN)),
        }

    def secret(self, text: str) -> Path:
        """A file for `text`, apart from all that is searched."""
        path = self.folder / "secrets" / str(abs(hash(text)))
        path.parent.mkdir(mode=0o700, exist_ok=True)
        if not path.exists():
            path.touch(mode=0o600)
            path.write_text(text + "\n")
        return path

    def produce(self, *arguments: object, code: int = 0, password: str | None = None) -> str:
        """`producer ARGUMENTS` as the collector's user; must end with `code`. What it said."""
        more = self.environment("collector", password)
        command = producer_command(*arguments)
        ended = subprocess.run(
            command, env=environment(**more), capture_output=True, text=True, timeout=120, check=False
        )
        said = ended.stdout + ended.stderr
        self.said[f"{len(self.said)} {' '.join(map(str, arguments))}"] = said
        assert ended.returncode == code, said
        return said

    def look_at_processes(self, *leaders: subprocess.Popen[bytes]) -> None:
        """Note their command lines, and their children's."""
        for leader in leaders:
            for pid in (leader.pid, *(child.pid for child in descendants(leader.pid))):
                for file in ("cmdline", "comm"):
                    self.said[f"{file} of {pid}"] = Path(f"/proc/{pid}/{file}").read_text()

    def places(self) -> Iterator[tuple[str, bytes]]:
        """Everything there is to search: what was said, each file but the secrets' own, each key of Redis."""
        for who, text in self.said.items():
            yield who, text.encode()
        for path in self.folder.rglob("*"):
            if path.is_file() and not {"secrets", "redis"} & set(path.relative_to(self.folder).parts[:1]):
                yield str(path), path.read_bytes()
        client = self.server.client()
        for key in client.scan_iter(count=1000):
            yield f"key {key!r}", key + bytes(client.dump(key) or b"")


@contextmanager
def secured_fleet(server: SecuredServer, folder: Path) -> Iterator[SecuredFleet]:
    """A worker and Flower, each as its user; the worker's process has been killed once."""
    fleet, port = SecuredFleet(server, folder), free_port()
    pages = Pages(folder, port)
    flower = worker_command("flower", "--port", port)
    worker = worker_command("start", *SIMULATED)
    with (
        started(worker, log=folder / "worker.log", **fleet.environment("worker")) as supervisor,
        started(flower, log=folder / "flower.log", **fleet.environment("flower")) as page,
    ):
        (first,) = _await_worker(server)
        fleet.look_at_processes(supervisor, page)
        (life,) = descendants(supervisor.pid)
        life.kill()
        wait_until(
            lambda: set(live_workers(server)) - {first}, timeout_s=120, description="another worker, after its death"
        )
        fleet.look_at_processes(supervisor, page)
        wait_until(lambda: pages.status("/", login=LOGIN) == 200, timeout_s=60, description="Flower answers")
        yield fleet
        _look_at_pages(fleet, pages)


def _await_worker(server: SecuredServer) -> list[str]:
    wait_until(lambda: live_workers(server), timeout_s=120, description="the worker is ready")
    return live_workers(server)


def _look_at_pages(fleet: SecuredFleet, pages: Pages) -> None:
    for address in ("/", "/workers", "/tasks", "/broker", "/metrics", "/api/workers?refresh=1"):
        with pages._ask(address, login=LOGIN, method="GET") as answer:
            fleet.said[f"Flower {address}"] = answer.read().decode()
    client: Any = fleet.server.client()
    for key in client.scan_iter("bakehouse:worker:*"):
        if address := client.hget(key, "metrics").decode():
            fleet.said[f"metrics of {key!r}"] = get(int(address.rpartition(":")[2]), "/metrics")[1]
