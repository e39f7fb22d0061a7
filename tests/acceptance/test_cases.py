"""Cases of real-world trouble: inputs that broke others' batches, judged by the corpus' own checker.

Each runs through the real command against one warm worker with the real engine, the small model served as `test-model`.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.case_checker import judge_run
from tests.processes import SMALL_MODEL, VLLM_FLAGS, run_producer, started_worker
from tests.servers import Server

CASES = Path(__file__).parent.parent / "data" / "cases"
ON_REAL_ENGINE = ("A01", "A02", "A03", "A04", "A05", "A06", "A07", "A10", "A15", "A16")

pytestmark = [pytest.mark.case, pytest.mark.engine]


def rows(*cases: str) -> list[tuple[str, str]]:
    """(file, expectation) of each input of `cases`, from the corpus' table."""
    table = (CASES / "cases.tsv").read_text(encoding="utf-8").split("\n")[1:]
    fields = [line.split("\t") for line in table if line]
    return [(row[1], row[4]) for row in fields if row[0] in cases and row[2] == "file"]


@pytest.fixture(scope="module")
def warm(valkey_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with one warm worker on the real engine."""
    valkey_server.client().flushall(asynchronous=False)
    log = tmp_path_factory.mktemp("worker") / "worker.log"
    arguments = ("--model", SMALL_MODEL, "--served-model-name", "test-model", *VLLM_FLAGS)
    with started_worker(valkey_server, *arguments, log=log):
        yield valkey_server


@pytest.mark.parametrize(("file", "expected"), rows(*ON_REAL_ENGINE))
def test_case_on_real_engine(warm: Server, tmp_path: Path, file: str, expected: str) -> None:
    output = tmp_path / "out.jsonl"
    ended = run_producer(
        "run", CASES / file, "-o", output, "--redis-url", warm.url, "--jobs", tmp_path / "jobs"
    )  # fmt: skip
    right, why = judge_run(expected, input=CASES / file, output=output, exit_code=ended.returncode)
    assert right, f"{why}\n{ended.stderr[-2000:]}"


def test_case_a15_on_two_simulated_workers(tmp_path: Path) -> None:
    ((file, expected),) = rows("A15")
    output = tmp_path / "out.jsonl"
    arguments = ("--engine", "sim", "--workers", "2", "--batch-size", "8", "--jobs", tmp_path / "jobs")
    ended = run_producer("run", CASES / file, "-o", output, *arguments)
    right, why = judge_run(expected, input=CASES / file, output=output, exit_code=ended.returncode)
    assert right, f"{why}\n{ended.stderr[-2000:]}"
    assert (
        len(
            {
                line.split(b'"worker":"')[1].split(b'"')[0]
                for line in output.read_bytes().split(b"\n")
                if b'"worker":"' in line
            }
        )
        == 2
    )


def test_case_a16_all_bad_needs_no_engine(valkey_server: Server, tmp_path: Path) -> None:
    ((file, expected),) = [row for row in rows("A16") if "all_bad" in row[0]]
    output = tmp_path / "out.jsonl"
    ended = run_producer(
        "run", CASES / file, "-o", output, "--redis-url", valkey_server.url, "--model", "nobody-serves-this",
        "--jobs", tmp_path / "jobs", timeout_s=10,
    )  # fmt: skip
    right, why = judge_run(expected, input=CASES / file, output=output, exit_code=ended.returncode)
    assert right, f"{why}\n{ended.stderr[-2000:]}"
