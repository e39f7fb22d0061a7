"""This project's side: `producer run` against one warm worker, every row journaled and synced."""

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from benchmarks.pipeline.listener import listening
from benchmarks.pipeline.measured import Measured, check_results, run_timed
from benchmarks.pipeline.scraper import scraping
from benchmarks.rows import write_padded
from tests.processes import producer_command, started_worker
from tests.prometheus_server import free_port
from tests.servers import VALKEY, Server

MODEL = "zero-cost"
ENGINE = ("--engine", "sim", "--sim-profile", "zero", "--sim-places", 512)
ROW_BYTES = 1_024
ROOMY_TOKENS = 1_000_000
"""Estimated tokens a micro-batch: so many that only requests are counted."""


@dataclass(frozen=True)
class Setup:
    """What is on. As it stands: all defaults."""

    micro_batch: int | None = None
    """Requests; None: the default."""
    events: bool = False
    """Celery's events, turned on and received as Flower does it."""
    metrics: bool = False
    """Metrics of worker and producer, scraped by their ports."""
    log_level: str = "info"
    """Of the worker."""


def write_rows(path: Path, rows: int, *, row_bytes: int = ROW_BYTES) -> Path:
    """The rows of all sides."""
    write_padded(path, rows, model=MODEL, row_bytes=row_bytes)
    return path


@contextmanager
def server_in(folder: Path, *options: str) -> Iterator[tuple[Server, int]]:
    """A server of its own, and its pid."""
    server = Server(VALKEY, folder / "valkey", *options).start()
    assert server.process is not None
    try:
        yield server, server.process.pid
    finally:
        server.stop()


def measure_fleet(setup: Setup, folder: Path, requests: Path, *, rows: int) -> Measured:
    """The rows through the fleet in `folder`, once."""
    folder.mkdir()
    output = folder / "results.jsonl"
    where = ("-o", output, "--jobs", folder / "jobs")
    ports = (free_port(), free_port()) if setup.metrics else ()
    with ExitStack() as open_:
        server, server_pid = open_.enter_context(server_in(folder))
        watched: list[tuple[object, ...]] = [("--metrics-port", port) for port in ports] or [(), ()]
        worker = open_.enter_context(
            started_worker(server, *ENGINE, "--log-level", setup.log_level, *watched[0], log=folder / "worker.log")
        )
        beside = {"supervisor": worker.pid, "redis": server_pid}
        listener = open_.enter_context(listening(server.url) if setup.events else nullcontext())
        if listener is not None:
            beside["listener"] = listener.pid
        pages = open_.enter_context(scraping(ports))
        size = () if setup.micro_batch is None else ("--batch-size", setup.micro_batch)
        seconds, usage = run_timed(
            producer_command("run", requests, *where, "--redis-url", server.url, *size, *watched[1]),
            role="producer",
            beside=beside,
            log=folder / "run.log",
            **({} if setup.micro_batch is None else {"BAKEHOUSE_BATCH_TOKENS": str(ROOMY_TOKENS)}),
        )
        messages = messages_of(folder / "jobs")
        events = 0 if listener is None else listener.received(least=messages)
    if ports and not pages:
        raise SystemExit("metrics were on, and nobody read them")
    check_results(output, rows=rows)
    log_bytes = (folder / "worker.log").stat().st_size
    return Measured(rows, messages, seconds, usage, events=events, scrapes=len(pages), log_bytes=log_bytes)


def messages_of(jobs: Path) -> int:
    """Micro-batches of the only job there, as its journal has them."""
    (journal,) = jobs.glob("*/journal.sqlite")
    with closing(sqlite3.connect(journal)) as connection:
        return int(connection.execute("SELECT count(*) FROM micro_batch").fetchone()[0])
