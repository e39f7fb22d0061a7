"""Lines that kill their worker, in real processes: they end as errors, their neighbours do not, the workers stay up."""

import subprocess
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
from tests.processes import read_results, started, started_worker
from tests.servers import Server
from tests.waiting import wait_until

(CASE,) = [case for case in read_cases() if case.name == "A21"]
POISON_SEQ = 4

pytestmark = pytest.mark.kill


@pytest.mark.case
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(("action", "cause", "deaths"), [("abort", "self", 3), ("kill", "outside", 5)])
def test_case_a21(
    valkey: redis.Redis,
    valkey_server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    action: str,
    cause: str,
    deaths: int,
    workers: int,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    arguments = (*SIMULATED, "--workers", workers, "--sim-pattern", f"{action}=POISON-KILL")
    with started_worker(valkey_server, *arguments, log=tmp_path / "worker.log") as node:
        ended = run_job(valkey_server, CASE.path, tmp_path)
        await_workers(valkey_server, workers)
        assert node.poll() is None
    output = tmp_path / "out.jsonl"
    check_run(CASE.expect, input_path=CASE.path, output_path=output, exit_code=ended.returncode)
    check_poison(tmp_path, {POISON_SEQ: cause}, deaths=deaths)
    assert solos(tmp_path) >= 1
    assert not solos(tmp_path, "AND open = 1")
    (failed,) = [result for result in read_results(output) if result["error"]]
    assert f"{deaths} worker processes died" in failed["error"]["message"]
    assert failed["meta"]["deliveries"] > deaths


def test_poison_among_deaths_by_chance(
    valkey: redis.Redis, valkey_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two lines kill three workers; a worker and the collector are killed besides, and the same command continues."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    poison = {9: "FALL-DOWN", 30: "BE-KILLED"}
    source = write_poisoned(tmp_path / "in.jsonl", 60, poison)
    patterns = ("--sim-pattern", "abort=FALL-DOWN", "--sim-pattern", "kill=BE-KILLED")
    more = ("--batch-size", 4)
    with started_worker(valkey_server, *SIMULATED, "--workers", 3, *patterns, log=tmp_path / "worker.log") as node:
        with started(job_command(valkey_server, source, tmp_path, *more), log=tmp_path / "run.log") as collector:
            kill_one_at_work(valkey, tmp_path)
            wait_until(lambda: solos(tmp_path), timeout_s=60, description="some requests are suspects")
            collector.kill()
            collector.wait()
        assert solos(tmp_path, "AND open = 1"), "killed while suspects are under way"
        ended: subprocess.CompletedProcess[str] = run_job(valkey_server, source, tmp_path, *more)
        await_workers(valkey_server, 3)
        assert node.poll() is None
    assert ended.returncode == ExitCode.FOUND
    results = read_results(tmp_path / "out.jsonl")
    assert [result["custom_id"] for result in results] == [f"r-{n}" for n in range(60)]
    assert [n for n, result in enumerate(results) if result["error"]] == sorted(poison)
    found = blames(tmp_path)
    assert len([blame for blame in found if blame.seq == 9]) <= 4, "3, and one more where it met a kill by chance"
    assert len([blame for blame in found if blame.seq == 30]) <= 5
    assert not list(valkey.scan_iter(keys.prefix(only_job(tmp_path / "jobs")) + "mb:*"))


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
