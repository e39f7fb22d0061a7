"""What `status --watch` shows, opened in Chromium as a page: counts and workers as on the terminal, and no prompt."""

from pathlib import Path

import pytest

from tests.browser import needs_browser, opened_browser
from tests.flower_pages import SECRET
from tests.processes import producer_command
from tests.sharing import shared_fleet, write_rows
from tests.terminal import terminal
from tests.terminal_page import as_page
from tests.waiting import wait_until

JOB = "looked-at"
ROWS = 2_000


@pytest.mark.browser
@needs_browser
def test_the_status_page_shows_counts_and_workers(tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "in.jsonl", [8] * ROWS)
    rows.write_text(rows.read_text().replace("say", SECRET))
    assert SECRET in rows.read_text()
    with (
        shared_fleet(tmp_path, workers=2, places=8, step_s=0.05) as jobs,
        jobs.running(JOB, rows),
        opened_browser(tmp_path / "profile") as browser,
    ):
        wait_until(lambda: jobs.done(JOB) > 100, timeout_s=60, description="it is under way")
        where = ("--redis-url", jobs.server.url, "--jobs", jobs.folder / "jobs")
        with terminal(producer_command("status", JOB, "--watch", *where)) as screen:
            for worker in ("-cpu0-", "-cpu1-"):
                screen.read_until(worker, timeout_s=60)
            seen, page = screen.text, as_page(screen.cells)
        (tmp_path / "status.html").write_text(page, encoding="utf-8")
        browser.open(f"file://{tmp_path / 'status.html'}")
        text = browser.await_text(JOB, f"of {ROWS:,}", "-cpu0-", "-cpu1-")
        assert [line.rstrip() for line in text.splitlines()] == seen.splitlines()
        assert max(map(len, text.splitlines())) <= 80
        assert SECRET.encode() not in screen.raw
        assert SECRET not in browser.source()
        assert browser.errors() == []
