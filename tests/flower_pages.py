"""Flower on a real fleet that runs a job with a secret in each prompt: its pages and its API, for tests."""

import base64
import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.processes import read_results, run_producer, started, started_worker, worker_command
from tests.prometheus_server import free_port
from tests.servers import Server
from tests.waiting import wait_until

ROWS = 240
TOKENS = 4
SECRET = "XYLOPHONE"
"""Stands in every prompt, and so in every answer: the simulated engine repeats what it is asked."""
LOGIN = "cook:oven"
WATCHED = "watched"
ROW = re.compile(r"job=(\S+) mb=(\d+) n=(\d+)")
SIMULATED = ("--engine", "sim", "--sim-seconds", "0.02", "--sim-places", "8")


class Pages:
    """Flower's pages and its API."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        """Where logs, input and output are."""
        self.pid = 0
        self.address = f"127.0.0.1:{port}"
        self.url = f"http://{LOGIN}@{self.address}"
        """For a browser."""

    def get(self, path: str) -> str:
        """The body of GET `path`."""
        with self._ask(path, login=LOGIN, method="GET") as answer:
            return str(answer.read().decode())

    def status(self, path: str, *, login: str | None = LOGIN, method: str = "GET") -> int:
        """The status of a call; 0 where nobody answers."""
        try:
            with self._ask(path, login=login, method=method) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def tasks(self) -> list[dict[str, Any]]:
        """Tasks that it saw from their start; of those under way when it came up it knows the end only."""
        return [task for task in json.loads(self.get("/api/tasks")).values() if task["received"] is not None]

    def workers(self) -> dict[str, bool]:
        """Workers on its list, and whether each is alive."""
        return {row["hostname"]: row["status"] for row in json.loads(self.get("/workers?json=1"))["data"]}

    def requests_seen(self) -> int:
        """Requests in the finished rows of the watched job, each micro-batch once."""
        rows = (ROW.fullmatch(task["args"]) for task in self.tasks() if task["state"] == "SUCCESS")
        return sum({int(row[2]): int(row[3]) for row in rows if row and row[1] == WATCHED}.values())

    def _ask(self, path: str, *, login: str | None, method: str) -> Any:
        request = urllib.request.Request(f"http://{self.address}{path}", method=method)
        if login is not None:
            request.add_header("Authorization", "Basic " + base64.b64encode(login.encode()).decode())
        return urllib.request.urlopen(request, timeout=10)


@contextmanager
def started_flower(server: Server, folder: Path, *flags: str) -> Iterator[Pages]:
    """`worker flower` with a login on `server`; `flags` are Flower's own."""
    pages = Pages(folder, free_port())
    port = pages.address.rpartition(":")[2]
    command = worker_command("flower", "--redis-url", server.url, "--port", port, "--basic-auth", LOGIN, "--", *flags)
    log = folder / "flower.log"
    with started(command, log=log) as process:
        why = f"Flower answers; its log: {log}"
        wait_until(lambda: process.poll() is not None or pages.status("/") == 200, timeout_s=30, description=why)
        assert process.poll() is None, log.read_text()
        pages.pid = process.pid
        yield pages


@contextmanager
def watched_job(server: Server, folder: Path, *flags: str) -> Iterator[Pages]:
    """Flower after a whole job that it watched from its first micro-batch, run by a worker that still lives."""
    source, output = write_rows(folder / "in.jsonl", ROWS), folder / "out.jsonl"
    first = write_rows(folder / "first.jsonl", 1)
    where = ("--redis-url", server.url, "--jobs", folder / "jobs", "--batch-size", 8)
    with started_worker(server, *SIMULATED, log=folder / "worker.log"), started_flower(server, folder, *flags) as pages:
        # Flower turns the events of tasks on within five seconds; it sees nothing of a job before
        earlier = (run_producer("run", first, "-o", output, *where, "--fresh", "--overwrite") for _ in range(20))
        wait_until(lambda: next(earlier) and pages.tasks(), timeout_s=60, description="the worker sends events")
        output.unlink()
        ended = run_producer("run", source, "-o", output, "--job-id", WATCHED, *where)
        assert ended.returncode == 0, ended.stderr[-2000:]
        assert SECRET in json.dumps(read_results(output)[0]["response"])
        wait_until(lambda: pages.requests_seen() == ROWS, timeout_s=20, description="Flower has seen every micro-batch")
        yield pages


def write_rows(path: Path, rows: int) -> Path:
    """An input of so many rows, the secret in each."""
    lines = [
        {"custom_id": f"r{n}", "messages": [{"role": "user", "content": f"{SECRET} {n}"}], "max_tokens": TOKENS}
        for n in range(rows)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path
