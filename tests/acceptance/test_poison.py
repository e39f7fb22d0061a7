"""Lines that kill their worker, in real processes: they end as errors, their neighbours do not, and the workers stay up."""

import random
import signal
import threading
from collections import Counter
from pathlib import Path

import psutil
import pytest
import redis

from common.errors import ErrorKind, ExitCode
from tests.case_checker import check_run, read_cases
from tests.poisoned import SIMULATED, await_workers, ask, blames, run_job, write_poisoned
from tests.processes import read_results, started_worker
from tests.servers import Server

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
    alone = ask(tmp_path, "SELECT count(*) FROM micro_batch WHERE kind = 'solo' AND open = 0")
    assert alone[0][0] >= 1
    (failed,) = [result for result in read_results(output) if result["error"]]
    assert f"{deaths} worker processes died" in failed["error"]["message"]
    assert failed["meta"]["deliveries"] > deaths


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
