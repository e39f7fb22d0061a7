"""Lines that kill their worker, in real processes: they end as errors, their neighbours do not, the workers stay up."""

import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import redis

from common import keys
from common.claims import Claims
from common.errors import ErrorKind, ExitCode
from tests.case_checker import check_run, read_cases
from tests.jobs import only_job
from tests.poisoned import SIMULATED, ask, await_workers, blames, job_command, run_job, write_poisoned
from tests.processes import ROOT, read_results, started, started_worker
from tests.servers import Server
from tests.waiting import wait_until

(CASE,) = [case for case in read_cases() if case.name == "A21"]
POISON_SEQ = 4

pytestmark = pytest.mark.kill


@pytest.fixture
def node_folder(valkey: redis.Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a node and a job leave what they write, on an empty Redis."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.case
@pytest.mark.parametrize(
    ("action", "cause", "deaths", "workers"),
    [("abort", "self", 3, 1), ("kill", "outside", 5, 1), ("kill", "outside", 5, 2)],
)
def test_case_a21(valkey_server: Server, node_folder: Path, action: str, cause: str, deaths: int, workers: int) -> None:
    arguments = (*SIMULATED, "--workers", workers, "--sim-pattern", f"{action}=POISON-KILL")
    with started_worker(valkey_server, *arguments, log=node_folder / "worker.log") as node:
        ended = run_job(valkey_server, CASE.path, node_folder)
        await_workers(valkey_server, workers)
        assert node.poll() is None
    output = node_folder / "out.jsonl"
    check_run(CASE.expect, input_path=CASE.path, output_path=output, exit_code=ended.returncode)
    check_poison(node_folder, {POISON_SEQ: cause}, deaths=deaths)
    assert solos(node_folder) >= 1
    assert not solos(node_folder, "AND open = 1")
    (failed,) = [result for result in read_results(output) if result["error"]]
    assert f"{deaths} worker processes died" in failed["error"]["message"]
    assert failed["meta"]["deliveries"] > deaths


def test_a_poison_line_alone_does_not_stop_its_worker(valkey_server: Server, node_folder: Path) -> None:
    """Five deaths without any result between: the supervisor bears five."""
    source = write_poisoned(node_folder / "in.jsonl", 1, {0: "BE-KILLED"})
    command = [sys.executable, "-P", "-m", "tests.supervised", "hurry", valkey_server.url, "kill=BE-KILLED"]
    with started(command, log=node_folder / "worker.log", PYTHONPATH=str(ROOT)) as node:
        assert run_job(valkey_server, source, node_folder).returncode == ExitCode.FOUND
        await_workers(valkey_server, 1)
        assert node.poll() is None
    check_poison(node_folder, {0: "outside"}, deaths=5)


def test_poison_among_deaths_by_chance(valkey: redis.Redis, valkey_server: Server, node_folder: Path) -> None:
    """Two lines kill three workers; a worker and the collector are killed besides, and the same command continues."""
    poison = {9: "FALL-DOWN", 30: "BE-KILLED"}
    source = write_poisoned(node_folder / "in.jsonl", 60, poison)
    patterns = ("--sim-pattern", "abort=FALL-DOWN", "--sim-pattern", "kill=BE-KILLED")
    more = ("--batch-size", 4)
    with started_worker(valkey_server, *SIMULATED, "--workers", 3, *patterns, log=node_folder / "worker.log") as node:
        with started(job_command(valkey_server, source, node_folder, *more), log=node_folder / "run.log") as collector:
            kill_one_at_work(valkey, node_folder)
            wait_until(lambda: solos(node_folder), timeout_s=60, description="some requests are suspects")
            collector.kill()
            collector.wait()
        assert solos(node_folder, "AND open = 1"), "killed while suspects are under way"
        ended: subprocess.CompletedProcess[str] = run_job(valkey_server, source, node_folder, *more)
        await_workers(valkey_server, 3)
        assert node.poll() is None
    assert ended.returncode == ExitCode.FOUND
    results = read_results(node_folder / "out.jsonl")
    assert [result["custom_id"] for result in results] == [f"r-{n}" for n in range(60)]
    assert [n for n, result in enumerate(results) if result["error"]] == sorted(poison)
    found = blames(node_folder)
    assert len([blame for blame in found if blame.seq == 9]) <= 4, "3, and one more where it met a kill by chance"
    assert len([blame for blame in found if blame.seq == 30]) <= 5
    assert not list(valkey.scan_iter(keys.prefix(only_job(node_folder / "jobs")) + "mb:*"))


def kill_one_at_work(client: redis.Redis, folder: Path) -> None:
    """Kill -9 a worker that holds some of the job."""
    victims: list[bytes | str] = []

    def look() -> bool:
        if not any((folder / "jobs").glob("*/journal.sqlite")):
            return False
        seen = Claims(client).look(only_job(folder / "jobs")).micro_batches.values()
        holders = [one.worker for one in seen if one.st == "HELD" and one.worker]
        victims[:] = [pid for holder in holders if (pid := client.hget(keys.worker(holder), "pid")) is not None]
        return bool(victims)

    wait_until(look, timeout_s=30, description="a worker holds some of the job")
    psutil.Process(int(victims[0])).kill()


def solos(folder: Path, which: str = "") -> int:
    """Micro-batches of one suspect that there ever were."""
    return int(ask(folder, f"SELECT count(*) FROM micro_batch WHERE kind = 'solo' {which}")[0][0])


def check_poison(folder: Path, poison: dict[int, str], *, deaths: int) -> None:
    """Each of `poison` (seq -> cause) was blamed exactly as often as it takes, and nobody else is called so."""
    found = blames(folder)
    for seq, cause in poison.items():
        own = [blame for blame in found if blame.seq == seq]
        assert len(own) == deaths
        assert {blame.cause for blame in own} == {cause}
        assert sum(blame.armed for blame in own) == deaths - 2, "it travels alone from the third on"
    assert not [blame for blame in found if blame.armed and blame.seq not in poison]
    called = {seq for (seq,) in ask(folder, f"SELECT seq FROM result WHERE code = '{ErrorKind.WORKER_LOST.value}'")}
    assert called == set(poison)
