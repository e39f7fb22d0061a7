"""A server over its memory limit: what it refuses, what it takes all the same, and that a collector makes room."""

import secrets
import threading
from pathlib import Path

import pytest
import redis

from common import keys
from common.notes import note
from common.wire import MicroBatch
from producer.fleet import read_fleet
from tests.collecting import Bench, FakeEngineWorker, Running, quick_settings, write_input
from tests.faults.redis_faults import copy_hints, fill, unfill
from tests.servers import Server
from tests.waiting import wait_until
from worker.certificates import Cause, certify
from worker.outage import Outage
from worker.presence import Presence

WORKER = "host-cpu0-00000001"
LIMIT_BYTES = 4 * 1024 * 1024
ROWS = 1600
"""Of 4 KiB each in Redis: more than fit."""


def test_a_full_server_takes_heartbeats_certificates_and_notes(own_server: Server) -> None:
    fill(own_server)
    client, outage = own_server.client(), Outage()
    presence = Presence(client, incarnation=WORKER, gpu="cpu0", engine="sim", every_s=5, outage=outage)
    presence.beat()
    assert [worker.incarnation for worker in read_fleet(client).workers] == [WORKER]
    assert 0 < int(str(client.ttl(keys.worker(WORKER)))) <= keys.WORKER_LIFETIME_S
    assert outage.lasted_s() == 0
    note(client, keys.JOBS, {"j": "{}"})
    assert client.ttl(keys.JOBS) == -1
    certify(client, WORKER, Cause.OUTSIDE)
    assert client.hget(keys.DIED, WORKER) == b"outside"
    assert read_fleet(client).workers == ()
    with pytest.raises(redis.OutOfMemoryError):
        client.hset(keys.DIED, "another", "outside")


def test_results_are_received_while_hints_are_refused(own_server: Server, tmp_path: Path) -> None:
    told = threading.Event()

    def publish_when_told(worker: FakeEngineWorker, job: str, batch: MicroBatch, token: str, got: int) -> None:
        assert told.wait(30)
        worker.publish_all(job, batch, token, got)

    settings = quick_settings(own_server, expire_s=30.0)
    source = write_input(tmp_path / "in.jsonl", 64)
    bench = Bench(tmp_path, own_server, source, settings=settings)
    with FakeEngineWorker(own_server, publish=publish_when_told, target=8) as worker:
        running = Running(bench.collector())
        wait_until(lambda: worker.claimed, timeout_s=10, description="the first is held")
        fill(own_server)
        copy_hints(own_server, copies=0)
        wait_until(
            lambda: any("is full" in (reason or "") for reason in bench.reasons), timeout_s=10, description="OOM"
        )
        told.set()
        wait_until(bench.results, timeout_s=10, description="what was in hand is received")
        assert running.alive()
        unfill(own_server)
        assert running.join().exit_code == 0
    bench.check_whole(64)
    assert worker.errors == []


def test_offers_leave_room_for_hints(own_server: Server, tmp_path: Path) -> None:
    """All that is offered before a worker comes: if nobody could be told of it, nothing would ever make room."""
    client = own_server.client()
    limit = client.info("memory")["used_memory"] + LIMIT_BYTES
    client.config_set("maxmemory", limit)
    source = write_input(tmp_path / "in.jsonl", ROWS)
    source.write_text("".join(line.replace("hello", secrets.token_hex(4096)) for line in source.open()))
    settings = quick_settings(own_server, look_s=0.5, expire_s=3.0)
    bench = Bench(tmp_path, own_server, source, settings=settings)
    running = Running(bench.collector())
    wait_until(lambda: client.info("memory")["used_memory"] > 0.7 * limit, timeout_s=20, description="it fills")
    with FakeEngineWorker(own_server, target=64) as worker:
        assert running.join(timeout_s=40).exit_code == 0
    bench.check_whole(ROWS)
    assert worker.errors == []
