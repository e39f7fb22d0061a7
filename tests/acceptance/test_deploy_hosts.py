"""Many hosts, for real: Redis on one, the collector on one, workers on others, and a network that fails between them.

One worker joins in the middle of the job, one is cut off and comes back, one vanishes, and the collector is cut from
Redis for a minute. About four minutes.
"""

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from benchmarks.who_worked import Fault, Span, draw_who_worked, spans_of
from common import keys
from common.claim_types import Seen
from common.claims import Claims
from producer.journal_reader import JournalReader
from tests.faults.hosts import Host, HostedServer, Network, network
from tests.faults.scene import comparable, undisturbed
from tests.jobs import check_whole, durable_results, write_requests
from tests.processes import live_workers, producer_command, read_results, started, worker_command
from tests.waiting import wait_until

PICTURE = "HOSTS_PICTURE"
"""Names a file for the picture of who worked when; unset: none is drawn."""
PASSWORD = "5ecret-of-redis"
ROWS = 2_000
JOB = "many-hosts"
SIMULATED = ("--engine", "sim", "--sim-places", "8", "--sim-seconds", "0.3")
"""8 requests of 8 tokens take 2.4 s: three hosts take 200 s for the rows."""
CUT_S = 60.0
REDO_S = 30.0
PATIENCE_S = 120.0


class Site:
    """Redis, a collector and workers, each on a host of its own, and one job."""

    def __init__(self, folder: Path, hosts: Network, running: ExitStack) -> None:
        self.folder, self.hosts, self._running = folder, hosts, running
        self.faults: list[Fault] = []
        self.workers: dict[str, Host] = {}
        self.server = HostedServer(hosts.add("redis"), password=PASSWORD)
        running.callback(self.server.stop)
        self.server.start()
        self.collector = hosts.add("collector")
        self.output = self.collector.home / "out.jsonl"
        self.collect: subprocess.Popen[bytes]

    def log(self, host: Host) -> Path:
        """What its one process said."""
        return self.folder / f"{host.name}.log"

    def start(self, host: Host, words: list[str]) -> "subprocess.Popen[bytes]":
        """`words` on `host`, which is told where Redis is and has the password in a file."""
        password = host.write("redis.password", PASSWORD + "\n")
        where = {"BAKEHOUSE_REDIS_URL": self.server.address, "BAKEHOUSE_REDIS_PASSWORD_FILE": str(password)}
        return self._running.enter_context(started(host.command(words), log=self.log(host), **where))

    def start_worker(self, name: str) -> None:
        """One more host with a worker."""
        host = self.workers[name] = self.hosts.add(name)
        self.start(host, worker_command("start", *SIMULATED))

    def await_live(self, *names: str) -> None:
        """Wait until the workers of all these hosts are live."""
        wait_until(lambda: set(names) <= self.live_hosts(), timeout_s=PATIENCE_S, description=f"{names} are live")

    def live_hosts(self) -> set[str]:
        """Hosts whose worker is live."""
        return {worker.split("-")[0] for worker in self.live()}

    def live(self) -> list[str]:
        """Incarnations, without the prefix of their keys."""
        return [name.removeprefix(keys.WORKER_PREFIX) for name in live_workers(self.server)]

    def start_job(self) -> None:
        """`producer enqueue`, then `producer collect`, as two commands on the collector's host."""
        source = write_requests(self.collector.home / "in.jsonl", ROWS)
        jobs = ("--jobs", self.collector.home / "jobs")
        enqueue = producer_command("enqueue", source, "-o", self.output, "--job-id", JOB, *jobs)
        assert self.start(self.collector, enqueue).wait(PATIENCE_S) == 0, self.log(self.collector).read_text()
        self.collect = self.start(self.collector, producer_command("collect", JOB, *jobs))

    def done(self) -> int:
        """Results that are certain."""
        return durable_results(self.collector.home / "jobs")

    def await_done(self, rows: int, *, timeout_s: float = PATIENCE_S) -> None:
        """Wait for so many, of a job that is not over."""
        self.await_seen(lambda: self.done() >= rows, f"{rows} results", timeout_s=timeout_s)
        assert self.done() < ROWS, "the job is over: nothing is left to disturb"

    def await_seen(self, seen: Callable[[], object], what: str, *, timeout_s: float = PATIENCE_S) -> None:
        """Wait for it while the job runs."""
        wait_until(lambda: self.collect.poll() is not None or seen(), timeout_s=timeout_s, description=what)
        assert self.collect.poll() is None, self.log(self.collector).read_text()[-3000:]

    def events(self, host: Host, name: str) -> list[dict[str, Any]]:
        """What `host` logged of one kind."""
        lines = self.log(host).read_text(errors="replace").splitlines()
        parsed = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
        return [line for line in parsed if line.get("event") == name]

    def held_by(self, name: str) -> dict[int, Seen]:
        """Micro-batches in the hands of that host's worker."""
        seen = Claims(self.server.client()).look(JOB).micro_batches
        return {mb: one for mb, one in seen.items() if one.st == "HELD" and str(one.worker).startswith(f"{name}-")}

    def unpublished(self, held: dict[int, Seen]) -> set[int]:
        """Rows of these micro-batches, from 0, whose results are not in Redis."""
        with JournalReader.open(self.collector.home / "jobs" / JOB / "journal.sqlite") as journal:
            found = [(journal.micro_batch(mb), seen.got) for mb, seen in held.items()]
        return {seq for row, got in found if row for place, seq in enumerate(row.seqs) if not got >> place & 1}

    def await_expired(self, name: str, held: dict[int, Seen]) -> None:
        """Wait until each hold of `held` is taken from its holder, for no cause that anybody certified."""

        def expired() -> list[dict[str, Any]]:
            return [one for one in self.events(self.collector, "hold_expired") if one["worker"].startswith(f"{name}-")]

        self.await_seen(lambda: {one["mb"] for one in expired()} >= set(held), f"{name}'s holds are given to others")
        assert {one["cause"] for one in expired()} == {"vanished"}, expired()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """Three workers in the middle of the job."""
    with network(tmp_path) as hosts, ExitStack() as running:
        site = Site(tmp_path, hosts, running)
        for name in ("w1", "w2", "w3"):
            site.start_worker(name)
        site.await_live("w1", "w2", "w3")
        site.start_job()
        site.await_done(60)
        yield site


@contextmanager
def joining(site: Site, name: str) -> Iterator[None]:
    """Another host comes in the middle of the job, and has work at the end of the block at the latest."""
    began = time.time() - PATIENCE_S  # before the first row
    site.start_worker(name)
    yield
    site.await_seen(lambda: site.held_by(name), f"{name} has work")
    ready = site.events(site.workers[name], "worker_ready")[0]["timestamp"]
    site.faults.append(Fault(name, "not there yet", began, datetime.fromisoformat(ready).timestamp()))


def cut_off_and_back(site: Site) -> tuple[str, Span]:
    """w2 is cut off until its work is given to others, and some seconds on; it stays the same process."""
    host = site.workers["w2"]
    (before,) = [worker for worker in site.live() if worker.startswith("w2-")]
    site.await_seen(lambda: site.held_by("w2"), "w2 has work")
    held, began = site.held_by("w2"), time.time()
    site.hosts.cut(host)
    site.await_expired("w2", held)
    site.await_seen(lambda: "w2" not in site.live_hosts(), "w2 counts as gone")
    site.await_seen(lambda: site.events(host, "redis_lost"), "w2 says so")
    site.hosts.mend(host)
    ended = time.time()
    site.await_seen(lambda: set(site.held_by("w2")) - set(held), "w2 has other work")
    assert before in site.live(), "another process came in its place"
    assert site.events(host, "redis_found")
    site.faults.append(Fault("w2", "cut off", began, ended))
    return before, Span(began, ended)


def vanish(site: Site) -> tuple[float, set[int]]:
    """w3 is gone at once, with nobody left to tell; returns when, and the rows that were in its hands."""
    host = site.workers["w3"]
    site.await_seen(lambda: site.held_by("w3"), "w3 has work")
    site.hosts.cut(host)
    held, at = site.held_by("w3"), time.time()
    rows = site.unpublished(held)
    host.vanish()
    site.await_expired("w3", held)
    assert rows, "it had published all that it held"
    assert not site.server.client().hkeys(keys.DIED), "somebody certified a death"
    site.faults.append(Fault("w3", "gone", at, None))
    return at, rows


def cut_the_collector(site: Site) -> Span:
    """For a minute it sees nothing, while workers go on and their results wait in Redis."""
    began, began_s = time.time(), time.monotonic()
    site.hosts.cut(site.collector)
    said = "Redis does not answer"
    site.await_seen(lambda: said in site.log(site.collector).read_text(), "it says so")
    before = site.done()
    site.await_seen(lambda: time.monotonic() - began_s >= CUT_S, "the minute is over", timeout_s=CUT_S + 5)
    assert site.done() == before, "it was not cut off"
    assert site.server.client().xlen(keys.results(JOB)) > 5, "no entry waits for it"
    site.hosts.mend(site.collector)
    ended = time.time()
    site.await_done(before + 200, timeout_s=REDO_S)
    site.faults.append(Fault("collector", f"cut from Redis for {CUT_S:.0f} s", began, ended))
    return Span(began, ended)


def check_who_worked(results: list[dict[str, Any]], *, away: Span, back: str, cut: Span) -> None:
    """Each host did its part, also after its fault, and workers went on without the collector."""
    spans = spans_of(results)
    assert {worker.split("-")[0] for worker in spans} == {"w1", "w2", "w3", "w4"}
    assert [worker for worker in spans if worker.startswith("w2-")] == [back]
    assert not [span for span in spans[back] if away.began + 15 < span.began < away.ended], "it was not cut off"
    assert [span for span in spans[back] if span.began > away.ended], "it did nothing after it came back"
    began = [span.began for found in spans.values() for span in found]
    assert [at for at in began if cut.ended - 10 < at < cut.ended], "all work was done before the collector came back"
    assert max(began) > cut.ended


def check_done_again(results: list[dict[str, Any]], *, rows: set[int], gone_at: float) -> None:
    """What the vanished host had in hand was begun by others within `REDO_S`."""
    again = spans_of(results[row] for row in rows)
    took_s = [span.began - gone_at for found in again.values() for span in found]
    print(
        f"{len(rows)} rows of the vanished host begun again {min(took_s):.1f} to {max(took_s):.1f} s after it was gone"
    )
    assert not [worker for worker in again if worker.startswith("w3-")]
    assert min(took_s) > 0
    assert max(took_s) <= REDO_S


@pytest.mark.deploy
@pytest.mark.timeout(900)
def test_a_job_over_hosts_that_join_fail_and_vanish_is_whole(site: Site) -> None:
    with joining(site, "w4"):
        back, away = cut_off_and_back(site)
    gone_at, rows = vanish(site)
    cut = cut_the_collector(site)
    assert site.collect.wait(180) == 0, site.log(site.collector).read_text()[-3000:]
    check_whole(site.output, ROWS)
    results = read_results(site.output)
    if PICTURE in os.environ:
        title = f"{ROWS:,} rows over four workers' hosts: each once, in order; darker: more at once"
        draw_who_worked(Path(os.environ[PICTURE]), results, site.faults, title=title)
    check_who_worked(results, away=away, back=back, cut=cut)
    check_done_again(results, rows=rows, gone_at=gone_at)
    assert comparable(results) == undisturbed(ROWS)
