"""Pictures of the pages that people look at, for `docs/`: a small fleet under load, as Chromium and a terminal show it.

`make pictures` renews them.
"""

import argparse
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.browser import Browser, opened_browser
from tests.flower_pages import Pages, started_flower
from tests.processes import live_workers, producer_command, started, started_worker
from tests.servers import VALKEY, Server
from tests.terminal import terminal
from tests.terminal_page import as_page
from tests.waiting import wait_until

WORKERS = 3
ROWS = 3_000
TOKENS = (12, 40, 24, 90, 16, 60)
JOB = "reviews-2026-12"
MODEL = "smollm2"
FLEET = ("--engine", "sim", "--model", MODEL, "--sim-places", 8, "--sim-seconds", 0.02, "--workers", WORKERS)
FAULTS = ("--sim-pattern", "fail=spoilt", "--sim-pattern", "fail-once=stale")
SEEN = 45
"""Finished micro-batches in Flower before the pictures are taken."""
PATIENCE_S = 180.0


def main() -> None:
    """Take all pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--into", type=Path, default=Path("docs/pictures"), help="Folder of the pictures.")
    into = parser.parse_args().into
    with tempfile.TemporaryDirectory(prefix="bakehouse-pages-") as name:
        folder = Path(name)
        server = Server(VALKEY, folder / "valkey").start()
        try:
            with busy_fleet(server, folder) as pages, opened_browser(folder / "profile") as browser:
                picture_flower(browser, pages, into)
                picture_status(browser, server, folder, into)
        finally:
            server.stop()
    for picture in ("flower-tasks", "flower-workers", "status"):
        print(f"{into / picture}.png: {(into / picture).with_suffix('.png').stat().st_size >> 10} KiB")


@contextmanager
def busy_fleet(server: Server, folder: Path) -> Iterator[Pages]:
    """Workers in the middle of a job, and Flower, which has seen some of it."""
    source = folder / "reviews.jsonl"
    source.write_text("".join(json.dumps(make_row(number)) + "\n" for number in range(ROWS)))
    where = ("--redis-url", server.url, "--jobs", folder / "jobs", "-o", folder / "results.jsonl")
    deadline = (datetime.now(UTC) + timedelta(hours=2)).isoformat(timespec="seconds")
    run = producer_command("run", source, *where, "--job-id", JOB, "--deadline", deadline, "--max-retries", 1)
    with (
        started_worker(server, *FLEET, *FAULTS, log=folder / "workers.log", BAKEHOUSE_RETRY_WAIT_S="0.2"),
        started_flower(server, folder) as pages,
    ):
        wait_until(lambda: len(live_workers(server)) == WORKERS, timeout_s=PATIENCE_S, description="all workers are up")
        with started(run, log=folder / "run.log"):
            wait_until(lambda: finished(pages) >= SEEN, timeout_s=PATIENCE_S, description="Flower has seen the job")
            yield pages


def make_row(number: int) -> dict[str, object]:
    """A line of the input; one of forty fails for good, one of thirty once."""
    kind = "spoilt" if number % 40 == 7 else "stale" if number % 30 == 11 else "fresh"
    limit = TOKENS[number % len(TOKENS)]
    return {"custom_id": f"review-{number}", "model": MODEL, "prompt": f"{kind} {number}", "max_tokens": limit}


def finished(pages: Pages) -> int:
    """Micro-batches that Flower saw to their end."""
    return sum(task["state"] == "SUCCESS" for task in pages.tasks())


def picture_flower(browser: Browser, pages: Pages, into: Path) -> None:
    """Its list of micro-batches, and its list of workers."""
    browser.open(f"{pages.url}/tasks")
    browser.await_text("mb=", "results=")
    browser.picture(into / "flower-tasks.png", width=1500, height=780)
    browser.open(f"{pages.url}/workers")
    browser.await_text("Online")
    browser.picture(into / "flower-workers.png", width=1280)


def picture_status(browser: Browser, server: Server, folder: Path, into: Path) -> None:
    """`producer status JOB --watch` as it stands on a terminal of 80 columns."""
    where = ("--redis-url", server.url, "--jobs", folder / "jobs")
    with terminal(producer_command("status", JOB, "--watch", "--gpu-hourly-cost", 2.5, *where)) as screen:
        for number in range(WORKERS):
            screen.read_until(f"-cpu{number}-", timeout_s=PATIENCE_S)
        page = folder / "status.html"
        page.write_text(as_page(screen.cells), encoding="utf-8")
    browser.open(f"file://{page}")
    browser.await_text(JOB)
    browser.picture(into / "status.png", width=780)


if __name__ == "__main__":
    main()
