"""Jobs for tests: requests to run, and what must be true of what they came to."""

import json
import sqlite3
import subprocess
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

from producer.job_directory import JobDirectory
from tests.processes import read_results
from tests.waiting import wait_until

ROWS = 60


def write_requests(path: Path, rows: int = ROWS, *, model: str | None = None) -> Path:
    """`rows` good requests, `r-0` first."""
    named = {} if model is None else {"model": model}
    lines = (json.dumps({"custom_id": f"r-{n}", "prompt": f"say {n}", "max_tokens": 8, **named}) for n in range(rows))
    path.write_text("".join(line + "\n" for line in lines))
    return path


def write_config(path: Path, **knobs: float) -> Path:
    """A file of knobs."""
    path.write_text("".join(f"{name}: {value}\n" for name, value in knobs.items()))
    return path


def only_job(jobs: Path) -> str:
    """The id of the only job in `jobs`."""
    (found,) = JobDirectory.list_all(jobs)
    return found.spec.job


def check_whole(output: Path, rows: int = ROWS) -> None:
    """Every request of `write_requests` has its one good result, in order."""
    results = read_results(output)
    assert [result["custom_id"] for result in results] == [f"r-{n}" for n in range(rows)]
    assert {result["response"]["status_code"] for result in results} == {200}


def check_summary(summary: dict[str, Any], output: Path) -> None:
    """The summary's figures are those that the file gives when it is counted."""
    results = read_results(output)
    usage = [result["response"]["body"].get("usage", {}) for result in results]
    codes = Counter(result["error"]["code"] for result in results if result["error"])
    assert summary["total"] == summary["done"] == len(results)
    assert summary["succeeded"] == sum(result["response"]["status_code"] == 200 for result in results)
    assert summary["failed"] == sum(codes.values())
    assert summary["failures"] == dict(codes)
    assert summary["prompt_tokens"] == sum(each.get("prompt_tokens", 0) for each in usage)
    assert summary["completion_tokens"] == sum(each.get("completion_tokens", 0) for each in usage)


def wait_for_results(output: Path, run: subprocess.Popen[bytes], *, at_least: int, log: Path) -> None:
    """Block until the ordered file has `at_least` lines."""
    wait_until(
        lambda: run.poll() is not None or (output.exists() and output.read_bytes().count(b"\n") >= at_least),
        timeout_s=60,
        description=f"{at_least} results",
    )
    assert run.poll() is None, log.read_text()[-3000:]


def durable_results(jobs: Path) -> int:
    """Results in the journal of the only job in `jobs`."""
    journals = list(jobs.glob("*/journal.sqlite"))
    if not journals:
        return 0
    with closing(sqlite3.connect(f"file:{journals[0]}?mode=ro", uri=True)) as journal:
        try:
            return int(journal.execute("SELECT count(*) FROM result").fetchone()[0])
        except sqlite3.OperationalError:
            return 0


def await_durable(jobs: Path, least: int) -> None:
    """Block until the journal of the only job in `jobs` has `least` results."""
    wait_until(lambda: durable_results(jobs) >= least, timeout_s=60, description=f"{least} durable results")
