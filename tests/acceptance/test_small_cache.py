"""Two real engines with a KV cache of two whole contexts: long and short prompts mixed, and how they warm up."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.engine_thread import MODEL
from tests.models import CONTEXT_TOKENS, tiny_model
from tests.processes import read_results, run_producer, started_worker
from tests.servers import Server
from tests.waiting import wait_until

CACHE_BYTES = 2 << 20
"""32 blocks of 128 tokens; a whole context takes 16."""
LONG, SHORT = 30, 180
SHORT_TOKENS = 350

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def log(valkey_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What a node of two such workers says."""
    valkey_server.client().flushall()
    log = tmp_path_factory.mktemp("small-cache") / "workers.log"
    flags = ("--kv-cache-memory-bytes", CACHE_BYTES, "--max-num-seqs", 16, "--dtype", "bfloat16")
    model = ("--model", tiny_model(), "--served-model-name", MODEL, "--workers", 2)
    with started_worker(valkey_server, *model, "--", *flags, log=log):
        yield log


def events(log: Path, *names: str) -> list[dict[str, Any]]:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.startswith('{"')]
    return [event for event in map(json.loads, lines) if event.get("event") in names]


def write_mixed(path: Path) -> Path:
    """Every seventh prompt is most of the context; the others are short and their answers long."""
    with path.open("w") as file:
        for i in range(LONG + SHORT):
            is_long = i % 7 == 0
            body = {
                "model": MODEL,
                "prompt": [3 + (i + j) % 900 for j in range(CONTEXT_TOKENS - 148 if is_long else 12)],
                "max_tokens": 64 if is_long else SHORT_TOKENS,
                **{"ignore_eos": True, "temperature": 0},
            }
            line = {"custom_id": f"r{i}", "method": "POST", "url": "/v1/completions", "body": body}
            file.write(json.dumps(line) + "\n")
    return path


def test_long_and_short_prompts_neither_block_nor_starve_each_other(
    log: Path, valkey_server: Server, tmp_path: Path
) -> None:
    source, output = write_mixed(tmp_path / "in.jsonl"), tmp_path / "out.jsonl"
    where = ("--redis-url", valkey_server.url, "--jobs", tmp_path / "jobs", "--batch-size", 7)
    ended = run_producer("run", source, "-o", output, *where, timeout_s=150)
    assert ended.returncode == 0, ended.stderr
    results = read_results(output)
    assert [result["custom_id"] for result in results] == [f"r{i}" for i in range(LONG + SHORT)]
    assert {result["meta"]["attempts"] for result in results} == {1}
    ends = [result["meta"]["finished_at"] for result in results]
    long_ends = sorted(ends[::7])
    short_ends = sorted(end for i, end in enumerate(ends) if i % 7)
    assert long_ends[0] < short_ends[-1]
    assert short_ends[0] < long_ends[-1]
    lowered = [event for event in events(log, "target_set") if "preempted" in event["reason"]]
    assert lowered, "so many at once do not fit"
    assert all(event["target"] < event["most"] == 20 for event in lowered)


def test_all_workers_of_a_node_warm_up_at_once_and_say_how_long_it_took(log: Path) -> None:
    started = [event for event in events(log, "model_loading", "model_loaded") if event["logger"] == "worker.process"]
    names = [event["event"] for event in started if "elapsed_s" not in event or event["event"] == "model_loaded"]
    assert names[:2] == ["model_loading"] * 2, "the second does not wait for the first"
    phases = "process", "checks", "import", "engine", "application", "consumer"
    said = r"worker: worker cpu[01]: ready after [\d.]+ s: " + ", ".join(rf"{phase} [\d.]+" for phase in phases)
    wait_until(lambda: len(re.findall(said, log.read_text())) == 2, timeout_s=60, description="both say their phases")
    token = r"worker: worker cpu[01]: first token [\d.]+ s after its first request, [\d.]+ s after its start"
    wait_until(lambda: re.search(token, log.read_text()), timeout_s=20, description="one has made its first token")
    (ready, *_) = [event for event in events(log, "worker_ready") if "phases_s" in event]
    assert abs(sum(ready["phases_s"].values()) - ready["elapsed_s"]) < 0.2
    assert min(ready["phases_s"]["import"], ready["phases_s"]["engine"]) > 0.5
