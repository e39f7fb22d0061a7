"""Two builds of a model under one served name: a job keeps to one of them, unless it was told that they may mix."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.jobs import ROWS, check_whole, write_requests
from tests.processes import read_results, run_producer, started_worker
from tests.servers import Server


@pytest.fixture(scope="module")
def two_builds(valkey_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Two workers that serve `m`, one says that it is build `one`, the other `two`."""
    valkey_server.client().flushall()
    logs = tmp_path_factory.mktemp("logs")
    model = ("--engine", "sim", "--model", "m", "--sim-places", 4, "--sim-seconds", 0.02, "--sim-revision")
    with (
        started_worker(valkey_server, *model, "one", log=logs / "one.log"),
        started_worker(valkey_server, *model, "two", log=logs / "two.log"),
    ):
        yield valkey_server


def builds_of(server: Server, folder: Path, *flags: object) -> set[tuple[Any, Any]]:
    """Run a job of small micro-batches; the revisions and digests in its results."""
    source, output = write_requests(folder / "in.jsonl", model="m"), folder / "out.jsonl"
    where = ("--redis-url", server.url, "--jobs", folder / "jobs", "--batch-size", 4)
    ended = run_producer("run", source, "-o", output, *where, *flags, timeout_s=60)
    assert ended.returncode == 0, ended.stderr
    check_whole(output, ROWS)
    metas = [result["meta"] for result in read_results(output)]
    return {(meta["model_revision"], meta["model_digest"]) for meta in metas}


def test_a_job_keeps_to_one_build(two_builds: Server, tmp_path: Path) -> None:
    assert len(builds_of(two_builds, tmp_path)) == 1


def test_builds_mix_where_that_is_allowed_and_each_result_names_its_own(two_builds: Server, tmp_path: Path) -> None:
    builds = builds_of(two_builds, tmp_path, "--allow-mixed-revisions")
    assert {revision for revision, _ in builds} == {"one", "two"}
    assert len({digest for _, digest in builds}) == 2
