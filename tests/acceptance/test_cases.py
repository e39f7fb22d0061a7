"""Cases of real-world trouble: inputs that broke others' batches, judged by the corpus' own checker.

Each runs through the real command against one warm worker with the real engine, the small model served as `test-model`.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.case_checker import Case, check_run, read_cases
from tests.processes import SMALL_MODEL, VLLM_FLAGS, read_results, run_producer, started_worker
from tests.servers import Server

ON_REAL_ENGINE = {"A01", "A02", "A03", "A04", "A05", "A06", "A07", "A10", "A15", "A16"}
CASES = [case for case in read_cases() if case.name in ON_REAL_ENGINE]

pytestmark = [pytest.mark.case, pytest.mark.engine]


@pytest.fixture(scope="module")
def warm(valkey_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with one warm worker on the real engine."""
    valkey_server.client().flushall(asynchronous=False)
    log = tmp_path_factory.mktemp("worker") / "worker.log"
    arguments = ("--model", SMALL_MODEL, "--served-model-name", "test-model", *VLLM_FLAGS)
    with started_worker(valkey_server, *arguments, log=log):
        yield valkey_server


def run_case(case: Case, output: Path, *arguments: object, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
    """The case's input through `producer run`, judged."""
    jobs = output.parent / "jobs"
    ended = run_producer("run", case.path, "-o", output, "--jobs", jobs, *arguments, timeout_s=timeout_s)
    print(ended.stderr)
    check_run(case.expect, input_path=case.path, output_path=output, exit_code=ended.returncode)
    return ended


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.file)
def test_case_on_real_engine(warm: Server, tmp_path: Path, case: Case) -> None:
    run_case(case, tmp_path / "out.jsonl", "--redis-url", warm.url)


def test_case_a15_on_two_simulated_workers(tmp_path: Path) -> None:
    (case,) = [case for case in CASES if case.name == "A15"]
    output = tmp_path / "out.jsonl"
    run_case(case, output, "--engine", "sim", "--workers", 2, "--batch-size", 8)
    workers = {result["meta"]["worker"] for result in read_results(output)} - {None}
    assert len(workers) == 2


def test_case_a16_all_bad_needs_no_engine(valkey_server: Server, tmp_path: Path) -> None:
    (case,) = [case for case in CASES if "all_bad" in case.file]
    arguments = ("--redis-url", valkey_server.url, "--model", "nobody-serves-this")
    run_case(case, tmp_path / "out.jsonl", *arguments, timeout_s=10)


def test_case_a16_summary_equals_the_file(warm: Server, tmp_path: Path) -> None:
    (case,) = [case for case in CASES if "mixed" in case.file]
    ended = run_case(case, tmp_path / "out.jsonl", "--redis-url", warm.url)
    words = " ".join(ended.stderr.split())
    for figure in ("17", "12", "5", "3"):
        assert figure in words
