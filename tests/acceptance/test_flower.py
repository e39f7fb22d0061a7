"""Flower on a real job: rows a person can read, a list of who lives, and no word of a prompt on any page."""

import os
import re
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from flower.urls import handlers

from common.broker import TASK_NAME, make_app
from common.settings import Settings
from tests.browser import needs_browser, opened_browser
from tests.flower_pages import ROW, ROWS, SECRET, SIMULATED, TOKENS, WATCHED, Pages, started_flower, watched_job
from tests.processes import memory_of, started_worker
from tests.servers import Server
from tests.waiting import wait_until

FORGET_S = 6
KEPT = 500
TASK_BYTES = 5_000
"""What Flower needs for each task that it keeps."""
RESULT = re.compile(r"results=(\d+) errors=(\d+) tokens=(\d+)")


@pytest.fixture(scope="module")
def pages(valkey_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    """Flower after a job that it watched; it forgets the dead sooner than by default."""
    valkey_server.client().flushall(asynchronous=False)
    folder = tmp_path_factory.mktemp("flower")
    with watched_job(valkey_server, folder, f"--purge_offline_workers={FORGET_S}") as pages:
        yield pages


def addresses(pages: Pages) -> list[str]:
    """Every page and every answer of its API that tells of tasks or workers."""
    task = pages.tasks()[0]
    read = ["/", "/workers", "/tasks", f"/task/{task['uuid']}", "/broker", f"/worker/{task['worker']}", "/metrics"]
    asked = ["/api/tasks", "/api/workers?refresh=1", f"/api/task/info/{task['uuid']}", "/api/task/types"]
    return read + asked


def test_rows_name_job_micro_batch_and_size(pages: Pages) -> None:
    tasks = pages.tasks()
    assert [task["args"] for task in tasks if not ROW.fullmatch(task["args"])] == []
    assert sum(f"job={WATCHED} " in task["args"] for task in tasks) >= ROWS // 8
    assert {task["name"] for task in tasks} == {TASK_NAME}


def test_results_are_counts_and_tokens(pages: Pages) -> None:
    results = {task["args"]: task["result"] for task in pages.tasks() if f"job={WATCHED} " in task["args"]}
    counts = [tuple(map(int, found.groups())) for found in map(RESULT.fullmatch, results.values()) if found]
    assert len(counts) == len(results)
    assert tuple(map(sum, zip(*counts, strict=True))) == (ROWS, 0, ROWS * TOKENS)


def test_workers_are_named_by_host_and_gpu(pages: Pages) -> None:
    assert [re.fullmatch(rf"{socket.gethostname()}-cpu0-[0-9a-f]{{8}}@.+", name) for name in pages.workers()] != [None]


def test_no_page_and_no_log_tells_a_prompt(pages: Pages) -> None:
    texts = {address: pages.get(address) for address in addresses(pages)}
    texts |= {log.name: log.read_text() for log in pages.folder.glob("*.log")}
    assert all(texts.values())
    assert "mb=" in texts[f"/task/{pages.tasks()[0]['uuid']}"]
    assert [place for place, text in texts.items() if SECRET in text] == []


def test_nothing_is_told_without_the_login(pages: Pages) -> None:
    assert {pages.status(address, login=None) for address in addresses(pages)} == {401}
    assert {pages.status(address, login="cook:wrong") for address in addresses(pages)} == {401}


def test_nothing_can_be_changed(pages: Pages) -> None:
    names = {"worker": pages.tasks()[0]["worker"], "task": TASK_NAME}
    commands = [
        pattern.replace("(.+)", names["worker" if "/worker/" in pattern else "task"])
        for pattern, handler in (handler[:2] for handler in handlers if isinstance(handler, tuple))
        if pattern.startswith("/api/") and "post" in vars(handler)
    ]
    assert len(commands) >= 14
    assert {command: pages.status(command, method="POST") for command in commands} == dict.fromkeys(commands, 403)
    assert pages.workers()[names["worker"]]


def test_the_dead_leave_the_list(pages: Pages, valkey_server: Server, tmp_path: Path) -> None:
    before = set(pages.workers())
    with started_worker(valkey_server, *SIMULATED, log=tmp_path / "worker.log") as node:
        wait_until(lambda: len(pages.workers()) > len(before), timeout_s=30, description="Flower lists the new worker")
        (name,) = set(pages.workers()) - before
        os.kill(node.pid, signal.SIGKILL)
        died = time.monotonic()
        wait_until(lambda: name not in pages.workers(), timeout_s=60, description="the dead worker leaves the list")
    assert time.monotonic() - died >= FORGET_S / 2
    assert set(pages.workers()) == before


def test_memory_is_bounded(own_server: Server, tmp_path: Path) -> None:
    with started_flower(own_server, tmp_path, f"--max_tasks={KEPT}") as pages:
        wait_until(lambda: hears(pages, own_server), timeout_s=30, description="Flower listens: its page came first")
        send_tasks(own_server, range(KEPT))
        wait_until(lambda: len(pages.tasks()) == KEPT, timeout_s=60, description="Flower has as many as it keeps")
        full = memory_of(pages.pid).bytes
        send_tasks(own_server, range(KEPT, 9 * KEPT))
        wait_until(
            lambda: any(f" mb={9 * KEPT - 1} " in task["args"] for task in pages.tasks()),
            timeout_s=120,
            description="Flower has seen all",
        )
        assert len(pages.tasks()) == KEPT
        assert memory_of(pages.pid).bytes - full < 8 * KEPT * TASK_BYTES / 2


def hears(pages: Pages, server: Server) -> bool:
    """Whether an event reaches Flower."""
    send_tasks(server, range(1))
    return bool(pages.tasks())


def send_tasks(server: Server, numbers: range) -> None:
    """Events of so many micro-batches, as a worker sends them."""
    app = make_app(Settings(redis_url=server.url))
    with (
        app.connection() as connection,
        app.events.Dispatcher(connection, hostname="host-cpu0-00000001@host") as events,
    ):
        for number in numbers:
            task = {"uuid": f"uuid-{number}", "name": TASK_NAME, "args": f"job=long mb={number} n=32", "kwargs": "{}"}
            events.send("task-received", **task, retries=0, eta=None, expires=None)
            events.send("task-succeeded", uuid=task["uuid"], result="results=32 errors=0 tokens=512", runtime=0.1)


@pytest.mark.browser
@needs_browser
def test_a_browser_shows_the_rows(pages: Pages, tmp_path: Path) -> None:
    """All that a person looks at, in Chromium, its scripts run."""
    task = pages.tasks()[0]
    shown = {
        "/tasks": (f"job={WATCHED} mb=", "results=", "SUCCESS"),
        f"/task/{task['uuid']}": (task["args"], "tokens="),
        "/workers": (task["worker"].partition("@")[0].rpartition("-")[2], "Online"),
        f"/worker/{task['worker']}": (task["worker"],),
        "/broker": ("bakehouse.q",),
    }
    with opened_browser(tmp_path / "profile") as browser:
        for address, texts in shown.items():
            browser.open(pages.url + address)
            text = browser.await_text(*texts)
            assert SECRET not in text
            assert SECRET not in browser.source()
            assert browser.errors() == []
            if address == "/tasks":
                rows = [(job, int(n)) for job, _, n in ROW.findall(text)]
                assert len(rows) >= 10
                assert WATCHED in {job for job, _ in rows}
                counts = [tuple(map(int, found)) for found in RESULT.findall(text)]
                assert counts == [(n, 0, n * TOKENS) for _, n in rows]
