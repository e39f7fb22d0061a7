"""`producer cancel` with real processes: what is finished stays, the rest is cancelled, whoever is killed meanwhile."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from common import keys
from common.claims import Claims
from tests.jobs import only_job, write_config
from tests.processes import (
    descendants,
    live_workers,
    producer_command,
    read_results,
    run_producer,
    started,
    started_worker,
)
from tests.servers import Server
from tests.waiting import wait_until

STOPPED_S = 10.0
"""From the command until nothing runs in any engine."""
SHORT, LONG = 4, 8_000
"""Tokens of a request that is finished soon, and of one that never is."""
SIM = ("--engine", "sim", "--sim-seconds", 0.02, "--sim-places", 16, "--served-model-name", "m")


class Scene:
    """One job on a fleet of one worker."""

    def __init__(self, folder: Path, server: Server, rows: int) -> None:
        self.folder, self.server, self.rows = folder, server, rows
        self.client = server.client()
        self.source, self.output, self.jobs = folder / "in.jsonl", folder / "out.jsonl", folder / "jobs"
        self.log = folder / "collector.log"
        with self.source.open("w") as file:
            for n in range(rows):
                tokens = SHORT if n % 4 == 0 else LONG
                file.write(json.dumps({"custom_id": f"r-{n}", "prompt": f"say {n}", "max_tokens": tokens}) + "\n")
        self.config = write_config(
            folder / "quick.yaml", expire_s=2, look_s=0.5, renew_s=0.5, presence_s=0.2, publish_s=0.1
        )
        self.where = ("--redis-url", server.url, "--jobs", self.jobs)

    @property
    def begin(self) -> tuple[object, ...]:
        """Arguments of `run` and `enqueue`."""
        return (self.source, "-o", self.output, "--model", "m", "--batch-size", 8, *self.where)

    def job(self) -> str:
        """The only one there is."""
        return only_job(self.jobs)

    def state(self) -> bytes | None:
        """What Redis says of the job."""
        state: Any = self.client.hget(keys.info(self.job()), "state")
        return state if isinstance(state, bytes) else None

    def held(self) -> int:
        """Its micro-batches that a worker holds."""
        look = Claims(self.client).look(self.job())
        return sum(seen.st == "HELD" for seen in look.micro_batches.values())

    def in_flight(self) -> int:
        """Requests in all engines, or about to be."""
        return sum(int(self.client.hget(name, "in_flight") or 0) for name in live_workers(self.server))

    def written(self) -> int:
        """Lines of the ordered file."""
        return self.output.read_bytes().count(b"\n") if self.output.exists() else 0

    def await_begun(self) -> None:
        """Wait until some requests are finished, and others run."""
        wait_until(lambda: self.jobs.exists() and self.written() >= 1, timeout_s=30, description="the first result")
        wait_until(self.in_flight, timeout_s=10, description="others run")

    def await_stopped(self, *, since_s: float) -> None:
        """Nothing runs in the engine any more, in time."""
        wait_until(lambda: not self.in_flight(), timeout_s=STOPPED_S, description="nothing runs in any engine")
        assert time.monotonic() - since_s <= STOPPED_S

    def cancel(self, *, code: int = 0) -> "subprocess.CompletedProcess[str]":
        """The command in a shell of its own."""
        ended = run_producer("cancel", self.job(), *self.where)
        assert ended.returncode == code, ended.stderr
        return ended

    def check(self) -> None:
        """Order and counts are whole; only what was short can have been finished, all else is cancelled."""
        results = read_results(self.output)
        assert [result["custom_id"] for result in results] == [f"r-{n}" for n in range(self.rows)]
        good = [n for n, result in enumerate(results) if result["error"] is None]
        assert good, "what is finished stays"
        assert all(n % 4 == 0 for n in good)
        assert {result["response"]["status_code"] for result in results} == {200, 499}
        ended = run_producer("collect", self.job(), *self.where, "--json")
        assert ended.returncode == 1, ended.stderr
        summary = json.loads(ended.stdout)
        assert (summary["state"], summary["total"], summary["done"]) == ("cancelled", self.rows, self.rows)
        assert (summary["succeeded"], summary["failures"]) == (len(good), {"cancelled": self.rows - len(good)})
        (seen,) = json.loads(run_producer("status", self.job(), *self.where, "--json").stdout)["jobs"]
        assert (seen["state"], seen["done"], seen["exit_code"]) == ("cancelled", self.rows, 1)
        names = {name.decode() for name in self.client.scan_iter(keys.prefix(self.job()) + "*")}
        assert names <= {keys.info(self.job())}


@contextmanager
def worker_of(scene: Scene, *more: object) -> Iterator["subprocess.Popen[bytes]"]:
    """The worker, with `more` arguments."""
    log = scene.folder / "worker.log"
    with started_worker(scene.server, *SIM, *more, log=log, BAKEHOUSE_PRESENCE_S="0.2") as worker:
        yield worker


@pytest.fixture
def scene(tmp_path: Path, valkey: redis.Redis, valkey_server: Server) -> Scene:
    """A job of 2,000 requests, most of which never end."""
    return Scene(tmp_path, valkey_server, 2_000)


def test_requests_stop_inside_the_engine(scene: Scene) -> None:
    """With renewals and looks as seldom as they are by default; `run` ends in its shell with 1."""
    with worker_of(scene), started(producer_command("run", *scene.begin), log=scene.log) as run:
        scene.await_begun()
        began_s = time.monotonic()
        said = scene.cancel()
        scene.await_stopped(since_s=began_s)
        assert "cancel" in said.stdout + said.stderr
        assert run.wait(30) == 1, scene.log.read_text()
    scene.check()


@pytest.mark.kill
def test_the_collector_is_killed_while_workers_give_back(scene: Scene) -> None:
    with worker_of(scene), started(producer_command("run", *scene.begin), log=scene.log) as run:
        scene.await_begun()
        with started(producer_command("cancel", scene.job(), *scene.where), log=scene.log):
            wait_until(lambda: scene.state() == b"cancelling", timeout_s=10, description="it is being cancelled")
            run.kill()
            run.wait()
        wait_until(lambda: not scene.in_flight(), timeout_s=STOPPED_S, description="workers need no collector to stop")
        collected = run_producer("collect", scene.job(), *scene.where)
        assert collected.returncode == 1, collected.stderr
    scene.check()


@pytest.mark.kill
def test_a_large_job_that_no_collector_has_and_a_command_killed_in_its_middle(
    tmp_path: Path, valkey: redis.Redis, valkey_server: Server
) -> None:
    """Most of its lines were never read. The command cancels them itself; killed, the next one goes on."""
    scene = Scene(tmp_path, valkey_server, 200_000)
    with worker_of(scene):
        enqueued = run_producer("enqueue", *scene.begin)
        assert enqueued.returncode == 0, enqueued.stderr
        wait_until(scene.in_flight, timeout_s=10, description="some run")
        with started(producer_command("cancel", scene.job(), *scene.where), log=scene.log) as cancel:
            wait_until(lambda: scene.written() > 20_000, timeout_s=120, description="a tenth is written")
            cancel.kill()
            cancel.wait()
        durable = scene.output.read_bytes().rpartition(b"\n")[0]
        assert durable.count(b"\n") < scene.rows - 1
        said = scene.cancel()
        assert f"job {scene.job()} is cancelled, 200,000 results" in said.stdout + said.stderr
        assert scene.output.read_bytes().startswith(durable)
    scene.check()


@pytest.mark.kill
def test_a_worker_that_vanishes_with_what_it_holds(scene: Scene) -> None:
    """It stands still, as its host would when it is gone; what it says when it wakes up changes nothing."""
    quick = ("--config", scene.config)
    with (
        worker_of(scene, *quick) as worker,
        started(producer_command("run", *scene.begin, *quick), log=scene.log) as run,
    ):
        scene.await_begun()
        frozen = [worker.pid, *(child.pid for child in descendants(worker.pid))]
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        try:
            assert scene.held()
            scene.cancel()
            assert run.wait(30) == 1, scene.log.read_text()
            before = scene.output.read_bytes()
        finally:
            for pid in reversed(frozen):
                os.kill(pid, signal.SIGCONT)
        wait_until(lambda: not scene.in_flight(), timeout_s=20, description="it stops when it wakes up")
    assert scene.output.read_bytes() == before
    scene.check()


def test_redis_is_gone_for_good(tmp_path: Path, own_server: Server) -> None:
    """The command ends the job all the same, once the time to wait for Redis is over; what was in it is cancelled."""
    scene = Scene(tmp_path, own_server, 2_000)
    assert run_producer("enqueue", *scene.begin).returncode == 0
    own_server.kill()
    config = write_config(tmp_path / "impatient.yaml", give_up_after_s=2)
    ended = run_producer("cancel", scene.job(), *scene.where, "--config", config)
    assert ended.returncode == 0, ended.stderr
    said = " ".join(ended.stderr.split())
    assert "Redis cannot be reached" in said
    assert "2,000 results" in ended.stdout + said
    results = read_results(scene.output)
    assert [result["custom_id"] for result in results] == [f"r-{n}" for n in range(scene.rows)]
    assert {result["error"]["code"] for result in results} == {"cancelled"}
    own_server.start()
    assert run_producer("collect", scene.job(), *scene.where).returncode == 1
    assert scene.state() == b"done"


def test_a_job_with_its_own_server_and_worker(tmp_path: Path, valkey: redis.Redis, valkey_server: Server) -> None:
    """The wish reaches it through its directory; no Redis is given to the command."""
    scene = Scene(tmp_path, valkey_server, 400)
    begin = ("run", scene.source, "-o", scene.output, "--jobs", scene.jobs, *SIM[:-2])
    with started(producer_command(*begin), log=scene.log) as run:
        wait_until(lambda: scene.written() >= 1, timeout_s=60, description="the first result")
        ended = run_producer("cancel", scene.job(), "--jobs", scene.jobs)
        assert ended.returncode == 0, ended.stderr
        assert run.wait(30) == 1, scene.log.read_text()
    assert "cancelled" in scene.log.read_text()
    results = read_results(scene.output)
    assert [result["custom_id"] for result in results] == [f"r-{n}" for n in range(400)]
    assert {result["response"]["status_code"] for result in results} == {200, 499}
