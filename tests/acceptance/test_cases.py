"""Cases of real-world trouble: inputs that broke others' batches, judged by the corpus' own checker.

Each runs through the real command against one warm worker with the real engine, the small model served as `test-model`.
"""

import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.case_checker import Case, check_run, read_cases
from tests.processes import (
    SMALL_MODEL,
    VLLM_FLAGS,
    descendants,
    live_workers,
    read_results,
    run_producer,
    started_worker,
)
from tests.servers import Server

ON_REAL_ENGINE = {f"A{number:02}" for number in range(1, 17)}
TOOL_FLAGS = ("--enable-auto-tool-choice", "--tool-call-parser", "hermes")
CASES = [case for case in read_cases() if case.name in ON_REAL_ENGINE]

pytestmark = [pytest.mark.case, pytest.mark.engine]


@pytest.fixture(scope="module")
def warm(valkey_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with one warm worker on the real engine; at the end it is the same one, with the same engine."""
    valkey_server.client().flushall(asynchronous=False)
    log = tmp_path_factory.mktemp("worker") / "worker.log"
    arguments = ("--model", SMALL_MODEL, "--served-model-name", "test-model", *VLLM_FLAGS, *TOOL_FLAGS)
    with started_worker(valkey_server, *arguments, log=log) as supervisor:
        before = (live_workers(valkey_server), engine_cores(supervisor.pid))
        yield valkey_server
        assert (live_workers(valkey_server), engine_cores(supervisor.pid)) == before
        assert len(before[1]) == 1


def engine_cores(pid: int) -> list[int]:
    """The engine cores among the processes below `pid`."""
    return [child.pid for child in descendants(pid) if "EngineCore" in "".join(child.cmdline())]


def run_case(case: Case, output: Path, *arguments: object, timeout_s: float = 280) -> subprocess.CompletedProcess[str]:
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


def test_a_grammar_that_fails_is_its_lines_own_fault(warm: Server, tmp_path: Path) -> None:
    """Not tried again, said in words, and no tool call after it is the worse for it."""
    schema = {"type": "array", "items": [{"type": "string"}, {"type": "integer"}]}
    shape = {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}
    tool = {"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}}
    refused, called = _ask(
        warm, tmp_path, {"response_format": shape}, {"tools": [tool], "tool_choice": "required", "max_tokens": 40}
    )
    assert refused["response"]["status_code"] == 400
    assert refused["error"]["code"] == "rejected"
    assert refused["meta"]["attempts"] == 1
    assert called["response"]["status_code"] == 200


def test_no_request_fetches_a_url_or_opens_a_file(warm: Server, tmp_path: Path) -> None:
    secret = tmp_path / "secret.png"
    secret.write_text("what only this file says")
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}/a.png"
        shape = {"type": "json_schema", "json_schema": {"name": "s", "schema": {"$ref": url}}}
        links = [
            {"messages": [_asking({"type": kind, kind: {"url": link}})]}
            for kind in ("image_url", "audio_url", "video_url")
            for link in (url, secret.as_uri())
        ]
        results = _ask(warm, tmp_path, *links, {"response_format": shape})
        nobody.settimeout(0)
        with pytest.raises(BlockingIOError):
            nobody.accept()
    assert {result["response"]["status_code"] for result in results[:-1]} == {400}
    assert results[-1]["response"]["status_code"] in (200, 400)
    assert "what only" not in (tmp_path / "out.jsonl").read_text()


def _asking(part: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": "What?"}, part]}


def _ask(warm: Server, folder: Path, *bodies: dict[str, Any]) -> list[dict[str, Any]]:
    """The results of a job with a line for each body; each is a chat call of 8 tokens unless it says otherwise."""
    asked = {"messages": [{"role": "user", "content": "Say ok."}], "max_tokens": 8}
    lines = [json.dumps({"custom_id": f"row-{i}", **asked, **body}) for i, body in enumerate(bodies)]
    (folder / "in.jsonl").write_text("\n".join(lines))
    output = folder / "out.jsonl"
    jobs = folder / "jobs"
    run_producer("run", folder / "in.jsonl", "-o", output, "--jobs", jobs, "--redis-url", warm.url)
    return read_results(output)
