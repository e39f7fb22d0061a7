"""Flower on a real job: rows a person can read, and no word of a prompt or an answer on any page."""

import base64
import html
import json
import re
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.processes import read_results, run_producer, started, started_worker, worker_command
from tests.prometheus_server import free_port
from tests.servers import Server
from tests.waiting import wait_until

ROWS = 240
SECRET = "XYLOPHONE"
"""Stands in every prompt, and so in every answer: the simulated engine repeats what it is asked."""
LOGIN = "cook:oven"
WATCHED = "watched"
ROW = re.compile(r"job=(\S+) mb=(\d+) n=(\d+)")
CHROMIUM = (
    *("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    "--virtual-time-budget=8000",
)


class Pages:
    """Flower's pages and its API."""

    def __init__(self, port: int) -> None:
        self.address = f"127.0.0.1:{port}"

    def get(self, path: str, *, login: str | None = LOGIN) -> str:
        """The body of GET `path`."""
        request = urllib.request.Request(f"http://{self.address}{path}")
        if login is not None:
            request.add_header("Authorization", "Basic " + base64.b64encode(login.encode()).decode())
        with urllib.request.urlopen(request, timeout=10) as answer:
            return str(answer.read().decode())

    def status(self, path: str, *, login: str | None = LOGIN, method: str = "GET") -> int:
        """The status of a call."""
        request = urllib.request.Request(f"http://{self.address}{path}", method=method)
        if login is not None:
            request.add_header("Authorization", "Basic " + base64.b64encode(login.encode()).decode())
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def tasks(self) -> dict[str, dict[str, Any]]:
        """What its API knows of tasks."""
        return dict(json.loads(self.get("/api/tasks")))

    def rendered(self, path: str, profile: Path) -> str:
        """The text of a page as a browser shows it, scripts run."""
        ended = subprocess.run(
            [*CHROMIUM, f"--user-data-dir={profile}", "--dump-dom", f"http://{LOGIN}@{self.address}{path}"],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        return html.unescape(re.sub(r"<[^>]+>", " ", re.sub(r"(?s)<(script|style).*?</\1>", " ", ended.stdout)))


@pytest.fixture(scope="module")
def pages(valkey_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    """Flower after a whole job that it watched. Those before it only last until Flower has turned events on."""
    valkey_server.client().flushall(asynchronous=False)
    tmp = tmp_path_factory.mktemp("flower")
    pages = Pages(free_port())
    port = pages.address.rpartition(":")[2]
    lines = [
        {"custom_id": f"r{n}", "messages": [{"role": "user", "content": f"{SECRET} {n}"}], "max_tokens": 4}
        for n in range(ROWS)
    ]
    (tmp / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    simulated = ("--engine", "sim", "--sim-seconds", "0.02", "--sim-places", "8")
    run = ("run", tmp / "in.jsonl", "--redis-url", valkey_server.url, "--jobs", tmp / "jobs", "--batch-size", 8)
    flower = worker_command("flower", "--redis-url", valkey_server.url, "--port", port, "--basic-auth", LOGIN)
    with (
        started_worker(valkey_server, *simulated, log=tmp / "worker.log"),
        started(flower, log=tmp / "flower.log") as process,
    ):
        why = f"Flower's log: {tmp / 'flower.log'}"
        wait_until(lambda: process.poll() is not None or pages.status("/") == 200, timeout_s=30, description=why)
        earlier = (run_producer(*run, "--fresh").returncode for _ in range(12))
        wait_until(lambda: next(earlier) == 0 and pages.tasks(), timeout_s=60, description=why)
        ended = run_producer(*run, "--job-id", WATCHED, "-o", tmp / "out.jsonl")
        assert ended.returncode == 0, ended.stderr[-2000:]
        assert SECRET in json.dumps(read_results(tmp / "out.jsonl")[0]["response"])
        wait_until(lambda: requests_seen(pages) == ROWS, timeout_s=20, description=f"every micro-batch; {why}")
        yield pages


def whole_rows(pages: Pages) -> list[dict[str, Any]]:
    """Tasks that Flower saw from their start; of those under way when events were turned on it knows the end only."""
    return [task for task in pages.tasks().values() if task["received"] is not None]


def requests_seen(pages: Pages) -> int:
    """Requests in the finished rows of the watched job, each micro-batch once."""
    rows = (ROW.fullmatch(task["args"]) for task in whole_rows(pages) if task["state"] == "SUCCESS")
    sizes = {int(row[2]): int(row[3]) for row in rows if row and row[1] == WATCHED}
    return sum(sizes.values())


def test_rows_name_job_micro_batch_and_size(pages: Pages) -> None:
    tasks = whole_rows(pages)
    assert [task["args"] for task in tasks if not ROW.fullmatch(task["args"])] == []
    assert sum(f"job={WATCHED} " in task["args"] for task in tasks) >= ROWS // 8
    assert {task["name"] for task in tasks} == {"bakehouse.run_micro_batch"}


def test_no_page_tells_a_prompt(pages: Pages) -> None:
    task = whole_rows(pages)[0]
    identifier = task["uuid"]
    paths = ["/", "/tasks", f"/task/{identifier}", "/broker", f"/worker/{task['worker']}", "/metrics"]
    paths += ["/api/tasks", "/api/workers?refresh=1", f"/api/task/info/{identifier}"]
    texts = {path: pages.get(path) for path in paths}
    assert all(texts.values())
    assert "mb=" in texts[f"/task/{identifier}"]
    assert [path for path, text in texts.items() if SECRET in text] == []


def test_a_login_is_needed_and_nothing_can_be_changed(pages: Pages) -> None:
    assert pages.status("/tasks", login=None) == 401
    assert pages.status("/api/tasks", login="cook:wrong") == 401
    worker = whole_rows(pages)[0]["worker"]
    assert pages.status(f"/api/worker/shutdown/{worker}", method="POST") in (403, 405)


@pytest.mark.skipif(not shutil.which("chromium"), reason="chromium is not installed (Debian: apt-get install chromium)")
def test_a_browser_shows_the_rows(pages: Pages, tmp_path: Path) -> None:
    text = pages.rendered("/tasks", tmp_path)
    rows = ROW.findall(text)
    assert len(rows) >= 10, text[-2000:]
    assert "SUCCESS" in text or "Succeeded" in text
    assert SECRET not in text
