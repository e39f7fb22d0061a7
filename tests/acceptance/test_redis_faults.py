"""What befalls Redis under a job at work: no result is lost or doubled, and work flows again within 30 s."""

import json
import re
import time
from datetime import datetime
from pathlib import Path

import psutil
import pytest

from common.settings import Settings
from producer import remedies
from tests.case_checker import check_run, read_cases
from tests.collecting import Bench, Running, write_input
from tests.faults import redis_faults
from tests.faults.proxy import Proxy
from tests.faults.scene import QUICK, Scene, at_work
from tests.faults.stepped_clock import COMPILER, HOUR_S, ClockedServer, SteppedClock
from tests.jobs import write_config
from tests.processes import await_gone, descendants, live_workers, read_results, run_producer, started_worker
from tests.servers import VALKEY, Server
from tests.waiting import wait_until
from worker.engines.sim_engine import CALLS_VARIABLE


def test_restarts_with_its_data(any_own_server: Server, tmp_path: Path) -> None:
    with at_work(any_own_server, tmp_path) as scene:
        redis_faults.restart(any_own_server)
        scene.check_flow()
        redis_faults.restart(any_own_server)
        redis_faults.restart(any_own_server)
        scene.check_flow()
        scene.check_whole()


@pytest.mark.parametrize("cut_bytes", [300, 3_000, 30_000])
def test_comes_back_without_the_end_of_its_log(own_server: Server, tmp_path: Path, cut_bytes: int) -> None:
    with at_work(own_server, tmp_path, environment=QUICK) as scene:
        assert redis_faults.restart(own_server, cut_bytes=cut_bytes) == cut_bytes
        scene.check_flow()
        scene.check_whole()


def test_is_flushed(any_own_server: Server, tmp_path: Path) -> None:
    with at_work(any_own_server, tmp_path, environment=QUICK) as scene:
        assert redis_faults.flush(any_own_server) > 4
        scene.check_flow()
        scene.check_whole()


def test_is_replaced_by_an_empty_one(own_server: Server, tmp_path: Path) -> None:
    with at_work(own_server, tmp_path) as scene:
        redis_faults.replace_by_empty(own_server)
        scene.check_flow()
        scene.check_whole()


def test_connections_are_killed(any_own_server: Server, tmp_path: Path) -> None:
    with at_work(any_own_server, tmp_path) as scene:
        for reach in (20, 32, 44):
            scene.reach(reach)
            assert redis_faults.kill_connections(any_own_server) >= 3
        scene.check_flow()
        scene.check_whole()


def test_connections_are_reset(own_server: Server, tmp_path: Path) -> None:
    with Proxy(own_server.socket, tcp=True) as proxy, at_work(own_server, tmp_path, url=proxy.url) as scene:
        for reach in (20, 32, 44):
            scene.reach(reach)
            assert proxy.reset_all() >= 3
        scene.check_flow()
        proxy.swallow(1, of=("smembers",))
        wait_until(lambda: proxy.swallowed["smembers"], timeout_s=30, description="a reply to the finish is lost")
        proxy.swallow(0)
        scene.check_whole()


LOST = [
    (("claim", "renew", "release"), 0.3),
    (("publish", "xdel", "close"), 0.2),
    (("own", "offer", "look", "note"), 0.1),
    ((), 0.03),
]


@pytest.mark.parametrize(("commands", "share"), LOST, ids=[row[0][0] if row[0] else "any" for row in LOST])
def test_replies_are_lost(own_server: Server, tmp_path: Path, commands: tuple[str, ...], share: float) -> None:
    with Proxy(own_server.socket) as proxy:
        proxy.swallow(share, of=commands)
        with at_work(own_server, tmp_path, url=proxy.url, reach=1) as scene:
            scene.check_whole()
        print(proxy.swallowed, proxy.commands)
        assert proxy.swallowed.total() >= 2, proxy.swallowed


def test_is_full(any_own_server: Server, tmp_path: Path) -> None:
    """Another tenant takes all its memory: what is in hand goes on, also past a lost connection and a dead worker."""
    with at_work(any_own_server, tmp_path, environment=QUICK) as scene:
        redis_faults.fill(any_own_server)
        redis_faults.kill_connections(any_own_server)
        scene.check_flow()
        worker = psutil.Process(scene.worker.pid).children()[0]
        worker.kill()
        wait_until(
            lambda: len(scene.events("worker_restarted")) == 1, timeout_s=10, description="another worker starts"
        )
        wait_until(lambda: live_workers(any_own_server), timeout_s=10, description="it is live")
        wait_until(lambda: "Redis is full" in scene.run_log.read_text(), timeout_s=15, description="what is waited for")
        redis_faults.unfill(any_own_server)
        scene.check_whole()


def resume_on_another(scene: Scene) -> int:
    """`producer resume` of the job on a server that never heard of it, with a worker there; returns its exit code."""
    another = Server(VALKEY, scene.folder / "another").start()
    knobs = write_config(scene.folder / "quick.yaml", expire_s=3, renew_s=1, look_s=1)
    try:
        with started_worker(another, "--engine", "sim", log=scene.folder / "another.log"):
            where = ("--jobs", scene.jobs, "--redis-url", another.url, "--config", knobs)
            return run_producer("resume", scene.job, *where).returncode
    finally:
        another.stop()


def test_is_gone_for_good(own_server: Server, tmp_path: Path) -> None:
    """Both commands say what they wait for, end resumable with their reason, and a new server does as well."""
    patience = {"BAKEHOUSE_GIVE_UP_AFTER_S": "6"}
    with at_work(own_server, tmp_path, environment=patience) as scene:
        below = descendants(scene.worker.pid)
        own_server.kill()
        wait_until(
            lambda: "redis_lost" in scene.run_log.read_text() and scene.events("redis_lost"),
            timeout_s=10,
            description="both say so",
        )
        assert scene.run.wait(20) == 3, scene.words()
        durable = scene.output.read_bytes()
        assert resume_on_another(scene) == 0
        assert scene.worker.wait(30) == 3, scene.words()
        await_gone(below)
        assert "EMERGENCY DUMP" not in scene.worker_log.read_text()
    said = scene.run_log.read_text().rstrip().splitlines()
    assert said[-1] == f"continue: producer resume {scene.job}"
    assert "nothing has moved for" in said[-2]
    assert "Redis does not answer" in said[-2]
    assert any(line.startswith("Redis does not answer") for line in said), "it waited in silence"
    assert "worker: Redis was away for 6 s: gave up" in scene.worker_log.read_text()
    assert scene.output.read_bytes().startswith(durable), "a line that was durable has changed"
    scene.check_results()


@pytest.mark.skipif(not COMPILER, reason="no C compiler for the clock (Debian: apt-get install gcc)")
def test_all_clocks_are_set_an_hour_on_and_two_back(tmp_path: Path) -> None:
    clock = SteppedClock(tmp_path)
    server = ClockedServer(VALKEY, tmp_path / "data", clock=clock)
    server.start()
    by_it = clock.environment
    try:
        with at_work(server, tmp_path, rows=128, environment=by_it) as scene:
            for offset_s in (HOUR_S, -HOUR_S):
                clock.step(offset_s)
                assert clock.offset_s() == pytest.approx(offset_s, abs=5)
                assert server.offset_s() == pytest.approx(offset_s, abs=5)
                assert scene.check_flow() < 10
                scene.reach(scene.durable() + 16)
            scene.check_whole()
    finally:
        server.stop()
    metas = [result["meta"] for result in read_results(scene.output)]
    ends = [datetime.fromisoformat(meta["finished_at"]).timestamp() for meta in metas]
    assert {round((end - time.time()) / HOUR_S) for end in ends} == {0, 1, -1}, "the worker did not live by the clock"
    assert all(meta["queue_s"] >= 0 and 0 < meta["latency_s"] < 60 for meta in metas)


@pytest.mark.parametrize("copies", [0, 2], ids=["dropped", "doubled"])
def test_hints_are_lost_and_doubled(own_server: Server, tmp_path: Path, copies: int) -> None:
    calls = tmp_path / "calls"
    with at_work(own_server, tmp_path, environment={CALLS_VARIABLE: str(calls)}) as scene:
        wait_until(lambda: redis_faults.copy_hints(own_server, copies=copies), timeout_s=10, description="a hint waits")
        assert scene.check_flow() < 10
        scene.check_whole()
    texts = [json.loads(line)["text"] for line in calls.read_text().splitlines()]
    assert len(texts) == len(set(texts)) == scene.rows, "a request was run twice"


def test_hints_are_lost_while_another_job_keeps_the_queue_busy(
    own_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come again after `UNCLAIMED_S`, here 3 s instead of 160, though the queue was never empty."""
    monkeypatch.setattr(remedies, "UNCLAIMED_S", 3.0)
    with at_work(own_server, tmp_path, rows=160) as scene:
        settings = Settings(redis_url=scene.url, batch_size=4)
        source = write_input(tmp_path / "other.jsonl", 12, model=None)
        (tmp_path / "other").mkdir()
        other = Bench(tmp_path / "other", own_server, source, model=None, settings=settings)
        running = Running(other.collector())
        wait_until(lambda: redis_faults.count_hints(own_server, other.job), timeout_s=10, description="its hints")
        assert redis_faults.copy_hints(own_server, copies=0, job=other.job) >= 2
        began_s = time.monotonic()
        wait_until(lambda: redis_faults.count_hints(own_server, other.job), timeout_s=9, description="its hints again")
        assert time.monotonic() - began_s > 1
        wait_until(lambda: redis_faults.count_hints(own_server, scene.job), timeout_s=2, description="a busy queue")
        assert running.join(timeout_s=60).exit_code == 0
        other.check_whole(12)
        scene.check_whole()


@pytest.mark.case
def test_case_a22_redis_restarts_under_a_running_job(own_server: Server, tmp_path: Path) -> None:
    (case,) = [case for case in read_cases() if case.name == "A20"]  # its input
    with at_work(own_server, tmp_path, rows=200, source=case.path, reach=60) as scene:
        before = redis_faults.run_id(own_server)
        own_server.kill()
        killed_s = time.monotonic()
        wait_until(lambda: time.monotonic() - killed_s >= 10, timeout_s=11, description="10 s without Redis")
        own_server.start()
        assert redis_faults.run_id(own_server) != before
        scene.check_flow()
        scene.reach(120)
        redis_faults.restart(own_server)
        redis_faults.restart(own_server)
        scene.check_flow()
        exit_code = scene.run.wait(60)
        check_run(case.expect, input_path=case.path, output_path=scene.output, exit_code=exit_code)
        assert scene.worker.poll() is None, scene.words()
        pauses = re.findall(r"Trying again in ([\d.]+) seconds", scene.worker_log.read_text())
        assert len(pauses) >= 3
        assert max(map(float, pauses)) <= 4, "a consumer's pauses grow"


def test_connections_are_silent(own_server: Server, tmp_path: Path) -> None:
    """A network that swallows everything: both say within 10 s what they wait for, and go on when it is back."""
    quick = {"BAKEHOUSE_SOCKET_TIMEOUT_S": "3"}
    with (
        Proxy(own_server.socket, tcp=True) as proxy,
        at_work(own_server, tmp_path, url=proxy.url, environment=quick) as scene,
    ):
        proxy.stall()
        began_s = time.monotonic()
        wait_until(
            lambda: "redis_lost" in scene.run_log.read_text() and scene.events("redis_lost"),
            timeout_s=10,
            description="both say so",
        )
        wait_until(lambda: time.monotonic() - began_s > 8, timeout_s=10, description="8 s of silence")
        durable = scene.durable()
        proxy.pass_on()
        scene.check_flow()
        assert scene.durable() > durable
        scene.check_whole()


def test_connections_die_without_a_word(own_server: Server, tmp_path: Path) -> None:
    """As by a firewall that forgot them: each side notices that nobody answers, and opens another."""
    with Proxy(own_server.socket, tcp=True) as proxy, at_work(own_server, tmp_path, url=proxy.url) as scene:
        opened = proxy.commands["brpop"]
        assert proxy.lose_all() >= 4
        scene.check_flow()
        wait_until(lambda: proxy.commands["brpop"] > opened + 1, timeout_s=20, description="hints are asked for again")
        scene.check_whole()
