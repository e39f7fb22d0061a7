"""All stand still for longer than a hold lasts, or a clock jumps: nothing twice, nothing lost, nobody blamed."""

import re
import sqlite3
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from common import keys
from common.claim_types import Seen
from common.settings import Settings
from producer.journal_reader import JournalReader
from tests.collecting import Bench, Running, write_input
from tests.faults.freezing import freeze, thaw
from tests.faults.jumping import jumping_command
from tests.jobs import check_whole, wait_for_results, write_config, write_requests
from tests.processes import live_workers, producer_command, read_results, started, started_worker
from tests.run_family import MEMBERS, family_of
from tests.servers import Server
from tests.waiting import wait_until

KNOBS: dict[str, Any] = {
    "renew_s": 0.4,
    "expire_s": 1.5,
    "look_s": 0.4,
    "publish_s": 0.2,
    "presence_s": 0.5,
    "hang_s": 4.0,
}
HOUR_S = 3600
FROZEN_S = 5.5
"""Longer than a hold lasts, an engine may hang, and a collector waits for anything to move."""
STAGGER_S = 0.7
SLOW = ("--engine", "sim", "--sim-seconds", "0.1", "--sim-places", "8")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Knobs by which holds are lost, and engines taken for hung, in less time than processes stand still here."""
    return write_config(tmp_path / "quick.yaml", **KNOBS)


def stay(duration_s: float) -> None:
    """Let time go by while something stands still: the fault itself, not a wait for its end."""
    until_s = time.monotonic() + duration_s
    wait_until(lambda: time.monotonic() >= until_s, timeout_s=duration_s + 5, description="time has gone by")


def causes_of_loss(journal: Path) -> set[str]:
    """What the journal says of the holds that were lost."""
    with closing(sqlite3.connect(f"file:{journal}?mode=ro", uri=True)) as opened:
        return {cause for (cause,) in opened.execute("SELECT DISTINCT cause FROM loss")}


def process_of(server: Server, key: str) -> int:
    """The pid of a worker, by its heartbeat."""
    return int(server.client().hget(key, "pid") or 0)


def test_a_worker_frozen_past_its_hold_is_refused_when_it_goes_on(
    tmp_path: Path, own_server: Server, config: Path
) -> None:
    """Its work runs elsewhere by then: what it publishes is refused, and it takes new work as if nothing had been."""
    settings = Settings(redis_url=own_server.url, batch_size=4, **KNOBS)
    bench = Bench(tmp_path, own_server, write_input(tmp_path / "in.jsonl", 64), settings=settings)
    logs = [tmp_path / "first.log", tmp_path / "second.log"]
    flags = ("--engine", "sim", "--sim-seconds", "0.2", "--sim-places", "4", "--served-model-name", "m")
    with ExitStack() as stack:
        for log in logs:
            stack.enter_context(started_worker(own_server, *flags, "--config", config, log=log))
        running = Running(bench.collector())
        first = live_workers(own_server)[0]
        pid, name = process_of(own_server, first), first.removeprefix(keys.WORKER_PREFIX)
        wait_until(lambda: held_by(bench, name), timeout_s=20, description="the worker holds something")
        freeze([pid])
        held = held_by(bench, name)
        assert held, "nothing was held by the frozen worker"
        wait_until(
            lambda: all(taken_over(bench, seen) for seen in held.items()) or not running.alive(),
            timeout_s=30,
            description="another has all that was held",
        )
        assert running.alive(), "the job was over before the worker went on"
        thaw([pid])
        assert running.join(timeout_s=60).exit_code == 0
        assert process_of(own_server, first) == pid, "the same process lives on"
    bench.check_whole(64)
    lost = [line for log in logs for line in log.read_text().splitlines() if '"hold_lost"' in line]
    assert len(lost) == len(held), "each late publish was refused"
    assert causes_of_loss(bench.directory.journal_path) == {"vanished"}
    with JournalReader.open(bench.directory.journal_path) as journal:
        assert journal.checkpoint().counts.duplicates == 0
    assert {result["meta"]["attempts"] for result in bench.results()} == {1}


def held_by(bench: Bench, name: str) -> dict[int, Seen]:
    """Micro-batches that the worker holds, none of whose results are published."""
    looked = bench.claims.look(bench.job).micro_batches
    return {mb: seen for mb, seen in looked.items() if seen.st == "HELD" and seen.worker == name and not seen.got}


def taken_over(bench: Bench, held: tuple[int, Seen]) -> bool:
    """Whether somebody else has, or had, what was held."""
    now = bench.claims.look(bench.job).micro_batches.get(held[0])
    return now is None or (now.st == "HELD" and now.token != held[1].token)


ORDERS = [
    pytest.param(["server", "worker", "supervisor", "producer"], id="producer last"),
    pytest.param(["producer", "server", "supervisor", "worker"], id="worker last"),
    pytest.param(["worker", "supervisor", "producer", "server"], id="server last"),
]


@pytest.mark.parametrize("order", ORDERS)
def test_a_laptop_sleeps(tmp_path: Path, config: Path, order: Sequence[str]) -> None:
    """All of a run stands still at once and wakes up one by one: the same processes go on as if nothing had been."""
    rows = 40
    source, output, jobs = write_requests(tmp_path / "in.jsonl", rows), tmp_path / "out.jsonl", tmp_path / "jobs"
    log, places = tmp_path / "run.log", ("-o", output, "--jobs", jobs, "--config", config)
    with started(producer_command("run", source, *places, *SLOW, "--batch-size", 4, "--json"), log=log) as run:
        wait_for_results(output, run, at_least=8, log=log)
        family = family_of(run)
        assert set(family) == set(MEMBERS)
        freeze([family[name] for name in MEMBERS])
        before = output.read_bytes()
        stay(FROZEN_S)
        assert output.read_bytes() == before, "something did not stand still"
        assert before.count(b"\n") < rows, "nothing was left to do"
        for name in order:
            thaw([family[name]])
            stay(STAGGER_S)
        assert run.poll() is not None or family_of(run) == family
        assert run.wait(60) == 0, log.read_text()[-3000:]
    check_whole(output, rows)
    (journal,) = jobs.glob("*/journal.sqlite")
    assert causes_of_loss(journal) <= {"vanished"}, "somebody was blamed"
    results = read_results(output)
    assert len({result["meta"]["worker"] for result in results}) == 1, "no worker died of it"
    assert {result["meta"]["attempts"] for result in results} == {1}
    with JournalReader.open(journal) as reader:
        assert reader.checkpoint().counts.duplicates == 0


def test_who_waits_and_sleeps_goes_on_waiting(tmp_path: Path, own_server: Server) -> None:
    """A collector that has nobody to work for it stood still for longer than it is ready to wait."""
    config = write_config(tmp_path / "impatient.yaml", **KNOBS, give_up_after_s=FROZEN_S - 1, socket_timeout_s=1)
    source, output, jobs = write_requests(tmp_path / "in.jsonl", 8), tmp_path / "out.jsonl", tmp_path / "jobs"
    log, places = tmp_path / "run.log", ("-o", output, "--jobs", jobs, "--config", config)
    with started(producer_command("run", source, *places, "--redis-url", own_server.url), log=log) as run:
        wait_until(lambda: is_open(own_server), timeout_s=30, description="the collector is at work")
        freeze([run.pid])
        with started_worker(own_server, *SLOW, "--config", config, log=tmp_path / "worker.log"):
            stay(FROZEN_S)
            thaw([run.pid])
            assert run.wait(30) == 0, log.read_text()
    check_whole(output, 8)


def test_all_clocks_of_a_collector_jump(tmp_path: Path, own_server: Server, config: Path) -> None:
    """Also the one that should never jump, as on a virtual machine that was paused: no hold is taken away for it."""
    rows = 40
    source, output, jobs = write_requests(tmp_path / "in.jsonl", rows), tmp_path / "out.jsonl", tmp_path / "jobs"
    log, places = tmp_path / "run.log", ("-o", output, "--jobs", jobs, "--config", config, "--batch-size", 4)
    clock = tmp_path / "ahead"
    clock.write_text("0")
    command = jumping_command(clock, "run", source, *places, "--redis-url", own_server.url, "--json")
    with (
        started_worker(own_server, *SLOW, "--config", config, log=tmp_path / "worker.log"),
        started(command, log=log) as run,
    ):
        wait_for_results(output, run, at_least=8, log=log)
        stepped = tmp_path / "stepped"
        stepped.write_text(str(HOUR_S))
        stepped.replace(clock)
        before = output.read_bytes().count(b"\n")
        assert before < rows, "nothing was left to do"
        assert run.wait(60) == 0, log.read_text()
    took = re.search(r'"elapsed_s": ([\d.]+)', log.read_text())
    assert took is not None
    assert float(took[1]) > HOUR_S, "its monotonic clock did not jump"
    check_whole(output, rows)
    (journal,) = jobs.glob("*/journal.sqlite")
    assert causes_of_loss(journal) == set(), "a hold was lost for a jump of the clock"
    assert {result["meta"]["deliveries"] for result in read_results(output)} == {1}


def is_open(server: Server) -> bool:
    """Whether a collector has its job in Redis."""
    client = server.client()
    return any(client.hget(key, "state") == b"open" for key in client.scan_iter("bakehouse:*:info"))
