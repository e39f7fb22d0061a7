"""Suspects as a collector handles them, on a real server: parting, turns, verdicts, what a crash or a flush leaves."""

import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import redis

from common import keys
from common.claim_types import Publication
from common.errors import ExitCode
from common.wire import MicroBatch
from producer.journal import Journal
from tests.collecting import Bench, FakeEngineWorker, Running, quick_settings, write_input
from tests.servers import Server

TOTAL = 40
PLACES = 10
"""A worker of so many is no reason for micro-batches of less than eight."""
POISON = 11
"""In the second micro-batch."""
NEIGHBOURS = set(range(8, 16)) - {POISON}
Publish = Callable[[FakeEngineWorker, str, MicroBatch, str, int], None]


@pytest.fixture
def bench(tmp_path: Path, valkey: redis.Redis, valkey_server: Server) -> Bench:
    """A job whose holds end by certificates alone."""
    settings = quick_settings(valkey_server, expire_s=60.0)
    return Bench(tmp_path, valkey_server, write_input(tmp_path / "in.jsonl", TOTAL), settings=settings)


def ask(bench: Bench, question: str) -> list[Any]:
    with closing(sqlite3.connect(bench.directory.journal_path)) as journal:
        return journal.execute(question).fetchall()


def die(worker: FakeEngineWorker, cause: str) -> None:
    """End this life, with a certificate; the next one works on."""
    worker.client.hset(keys.DIED, worker.incarnation, cause)
    worker.client.delete(keys.worker(worker.incarnation))
    worker.incarnation += "+"


def deadly(cause: str, *, published: int = 0, unarmed: int = 0) -> Publish:
    """A worker that dies of POISON, after `published` results of its micro-batch; the first `unarmed` solos wait."""
    waits = iter(range(unarmed))

    def publish(worker: FakeEngineWorker, job: str, batch: MicroBatch, token: str, got: int) -> None:
        if batch.kind == "solo":
            check_turn(worker)
            if next(waits, None) is not None:
                return die(worker, cause)
            assert worker.claims.arm(job, batch.mb, token=token)
        if POISON in {request.seq for i, request in enumerate(batch.requests) if not got >> i & 1}:
            if published and batch.kind == "normal":
                worker.publish_some(job, batch, token, list(range(published)))
            return die(worker, cause)
        return worker.publish_all(job, batch, token, got)

    return publish


def check_turn(worker: FakeEngineWorker) -> None:
    """A suspect of a fleet of one worker travels alone: no other is hinted."""
    assert not worker.client.llen(keys.queue("m", "d1"))


def check_verdict(bench: Bench) -> dict[str, Any]:
    """POISON alone is lost; returns its result."""
    results = bench.results()
    bench.check_whole(TOTAL)
    assert [seq for seq, result in enumerate(results) if result["error"]] == [POISON]
    assert results[POISON]["error"]["code"] == "worker_lost"
    assert results[POISON]["response"]["status_code"] == 500
    return results[POISON]


@pytest.mark.parametrize(("cause", "deaths"), [("self", 3), ("outside", 5)])
def test_poison_ends_and_its_neighbours_run_on(bench: Bench, valkey_server: Server, cause: str, deaths: int) -> None:
    with FakeEngineWorker(valkey_server, target=PLACES, publish=deadly(cause, published=2)) as worker:
        outcome = Running(bench.collector()).join(timeout_s=40)
    assert not worker.errors
    assert outcome.exit_code == ExitCode.FOUND
    result = check_verdict(bench)
    assert f"{deaths} worker processes died" in result["error"]["message"]
    assert result["meta"]["deliveries"] == deaths + 1
    losses = ask(bench, "SELECT seq, armed FROM loss")
    blamed = Counter(seq for seq, _ in losses)
    assert blamed == {POISON: deaths} | dict.fromkeys(NEIGHBOURS - {8, 9}, 2), "what was published is not blamed"
    assert [seq for seq, armed in losses if armed] == [POISON] * (deaths - 2)
    rows = ask(bench, "SELECT kind, count(*), sum(open) FROM micro_batch GROUP BY kind ORDER BY kind")
    assert rows == [("normal", 5, 0), ("solo", 6, 0)], "its neighbours were suspects too"


def test_only_those_blamed_twice_travel_alone(bench: Bench, valkey_server: Server) -> None:
    """What had been published when the first worker died is not blamed; where it cannot be read it runs again."""
    lives: list[int] = []
    bench.settings = quick_settings(valkey_server, expire_s=1.0)

    def publish(worker: FakeEngineWorker, job: str, batch: MicroBatch, token: str, got: int) -> None:
        if batch.mb == 2 and len(lives) < 2:
            lives.append(batch.mb)
            if len(lives) == 1:
                worker.claims.publish(job, [Publication(batch.mb, token, 1, b"no zstd")])
            return die(worker, "outside")
        if batch.kind == "solo":
            assert worker.claims.arm(job, batch.mb, token=token)
        return worker.publish_all(job, batch, token, got)

    with FakeEngineWorker(valkey_server, target=PLACES, publish=publish) as worker:
        outcome = Running(bench.collector()).join(timeout_s=30)
    assert not worker.errors
    bench.check_whole(TOTAL)
    assert (outcome.exit_code, outcome.counts.duplicates) == (ExitCode.OK, 0)
    rows = ask(bench, "SELECT kind, count(*), sum(open) FROM micro_batch GROUP BY kind ORDER BY kind")
    assert rows == [("normal", 6, 0), ("solo", 7, 0)]
    blamed = Counter(seq for (seq,) in ask(bench, "SELECT seq FROM loss"))
    assert blamed.pop(8, 0) <= 1
    assert blamed == dict.fromkeys(range(9, 16), 2)


@pytest.mark.parametrize("cause", ["left", "vanished"])
def test_ends_that_blame_nobody_make_no_suspects(
    tmp_path: Path, valkey: redis.Redis, valkey_server: Server, cause: str
) -> None:
    settings = quick_settings(valkey_server, **({"expire_s": 60.0} if cause == "left" else {}))
    bench = Bench(tmp_path, valkey_server, write_input(tmp_path / "in.jsonl", TOTAL), settings=settings)

    def publish(worker: FakeEngineWorker, job: str, batch: MicroBatch, token: str, got: int) -> None:
        if batch.mb == 2 and worker.claimed.count(2) <= 4:
            if cause == "left":
                die(worker, "left")
        else:
            worker.publish_all(job, batch, token, got)

    with FakeEngineWorker(valkey_server, target=PLACES, publish=publish) as worker:
        outcome = Running(bench.collector()).join(timeout_s=30)
    assert worker.claimed.count(2) == 5
    assert outcome.exit_code == ExitCode.OK
    assert set(ask(bench, "SELECT cause FROM loss")) == {(cause,)}
    assert ask(bench, "SELECT count(*) FROM micro_batch WHERE kind = 'solo'") == [(0,)]


def test_a_suspect_whose_run_had_not_begun_is_not_blamed(bench: Bench, valkey_server: Server) -> None:
    with FakeEngineWorker(valkey_server, target=PLACES, publish=deadly("outside", unarmed=4)) as worker:
        Running(bench.collector()).join(timeout_s=40)
    assert not worker.errors
    check_verdict(bench)
    losses = Counter(cause for (cause,) in ask(bench, "SELECT cause FROM loss"))
    assert losses["waited"] == 4
    assert Counter(ask(bench, f"SELECT cause FROM loss WHERE seq = {POISON} AND cause != 'waited'")) == {
        ("outside",): 5
    }


def test_suspects_outlive_a_flush(bench: Bench, valkey: redis.Redis, valkey_server: Server) -> None:
    """Micro-batches, kinds and losses all come from the journal; what was armed in the lost Redis blames nobody."""
    once = iter("1")
    then = deadly("self")

    def publish(worker: FakeEngineWorker, job: str, batch: MicroBatch, token: str, got: int) -> None:
        if batch.kind == "solo" and next(once, None):
            valkey.flushall(asynchronous=False)
            return worker.show()
        return then(worker, job, batch, token, got)

    bench.settings = quick_settings(valkey_server, expire_s=1.0)
    with FakeEngineWorker(valkey_server, target=PLACES, publish=publish) as worker:
        Running(bench.collector()).join(timeout_s=40)
    assert not worker.errors
    check_verdict(bench)
    assert Counter(ask(bench, f"SELECT cause FROM loss WHERE seq = {POISON}")) == {("self",): 3}


@pytest.mark.parametrize(
    ("target", "number"),
    [
        pytest.param("producer.journal:Journal.add_micro_batches", 2, id="lost, not parted"),
        pytest.param("producer.window:Window.part", 1, id="parted in the journal, not in Redis"),
        pytest.param("producer.isolation:Isolation._put_up", 1, id="the old one still in Redis"),
        pytest.param("producer.isolation:put_up", 1, id="the old one closed, the new ones not offered"),
        pytest.param("producer.isolation:give_up", 1, id="poison, and no result yet"),
    ],
)
def test_a_collector_killed_between_two_steps_leaves_suspects_to_the_next(
    bench: Bench, valkey: redis.Redis, valkey_server: Server, target: str, number: int
) -> None:
    with FakeEngineWorker(valkey_server, target=PLACES, publish=deadly("self")) as worker:
        bench.crash(target, number)
        check_one_vehicle_each(bench)
        bench.settings = quick_settings(valkey_server)
        Running(bench.collector()).join(timeout_s=40)
    assert not worker.errors
    check_verdict(bench)
    assert ask(bench, "SELECT count(*) FROM micro_batch WHERE open = 1") == [(0,)]
    assert not list(valkey.scan_iter(keys.prefix(bench.job) + "mb:*"))


def check_one_vehicle_each(bench: Bench) -> None:
    """Every request that was fed and has no result travels in exactly one open micro-batch."""
    with closing(Journal.open(bench.directory.journal_path)) as journal:
        travelling = Counter(
            seq for row, got in journal.open_micro_batches() for i, seq in enumerate(row.seqs) if not got >> i & 1
        )
    fed = {seq for (seq,) in ask(bench, "SELECT seq FROM request")}
    done = {seq for (seq,) in ask(bench, "SELECT seq FROM result")}
    assert travelling == dict.fromkeys(fed - done, 1)
