"""Where the engine benchmark says that time went: what a job's results tell, and the parts of the gap."""

import json
from pathlib import Path

import pytest

from benchmarks.engine.gap import Gap
from benchmarks.engine.measured import Edges, Measured, tail_s
from benchmarks.engine.steps import steps_in
from benchmarks.engine.timeline import edges_of, full_since, read_timeline
from benchmarks.engine.workloads import salted, workloads
from benchmarks.rows import CHAT, EMBEDDINGS


def result(model: str, *, queue_s: float, started: str, finished: str) -> str:
    meta = {"model": model, "queue_s": queue_s, "started_at": f"2026-12-01T00:00:{started}Z"}
    return json.dumps({"meta": {**meta, "finished_at": f"2026-12-01T00:00:{finished}Z"}}) + "\n"


def test_edges_are_read_from_results(tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    lines = [
        result("a", queue_s=0.5, started="10.500000", finished="12.000000"),
        result("a", queue_s=1.5, started="11.500000", finished="14.000000"),
        result("b", queue_s=0.7, started="10.700000", finished="19.000000"),
    ]
    output.write_text("".join(lines))
    rows = read_timeline(output)
    last_line_at = rows[0].fed_at + 9.25
    edges = edges_of(rows, model="a", concurrency=2, last_line_at=last_line_at, seconds=10.0)
    assert edges == pytest.approx((0.5, 1.5, 0.25, 0.75))
    assert edges.lost_s == pytest.approx(1.5)
    assert full_since(rows, concurrency=4) is None


def test_the_tail_begins_when_places_fall_empty() -> None:
    assert tail_s([9.0, 1.0, 2.0, 3.0], concurrency=2) == 7.0
    assert tail_s([1.0, 2.0], concurrency=2) is None


def test_the_parts_of_a_gap_add_up() -> None:
    fleet = Measured(113.0, 1000, 1000, None, {}, Edges(0.5, 1.0, 0.25, 2.25))
    bare = Measured(100.0, 1000, 1000, None, {})
    gap = Gap.between(fleet, bare)
    assert gap == pytest.approx((13.0, 3.0, 0.0, 10.0))
    more = Gap.between(Measured(110.0, 1000, 1100, None, {}), bare)
    assert more == pytest.approx((10.0, 0.0, 10.0, 0.0))


def test_steps_are_counted_over_all_engines() -> None:
    text = 'vllm:iteration_tokens_total_count{engine="0"} 40.0\nvllm:iteration_tokens_total_sum{engine="0"} 9.0\n'
    assert steps_in(text) == 40
    assert steps_in("") == 0


@pytest.mark.parametrize("name", workloads(quick=False))
def test_rows_are_the_same_at_each_writing(name: str, tmp_path: Path) -> None:
    workload = workloads(quick=False)[name]
    tokens = [workload.write(tmp_path / file, 40) for file in ("one", "two")]
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    rows = [json.loads(line) for line in (tmp_path / "one").read_text().splitlines()]
    assert len({row["custom_id"] for row in rows}) == 40
    assert tokens == [sum(row["body"].get("max_tokens", 0) for row in rows)] * 2
    assert {row["body"]["model"] for row in rows} == set(workload.models)


def test_prefixes_are_shared_and_long(tmp_path: Path) -> None:
    workloads(quick=False)["prefixes"].write(tmp_path / "rows", 1_000)
    bodies = [json.loads(line)["body"] for line in (tmp_path / "rows").read_text().splitlines()]
    prefixes = [body["messages"][0]["content"] for body in bodies]
    assert sorted(map(prefixes.count, set(prefixes))) == [50] * 20
    assert all(len(prefix.split()) > 300 for prefix in prefixes)
    assert len({body["messages"][1]["content"] for body in bodies}) == 1_000


def test_salt_keeps_runs_apart(tmp_path: Path) -> None:
    source = tmp_path / "rows"
    mixed = workloads(quick=False)["mixed"]
    mixed.write(source, 10)
    rows = [json.loads(line) for line in salted(source, tmp_path / "copy", salt="a").read_text().splitlines()]
    assert [row["body"].get("cache_salt") for row in rows] == ["a", None] * 5
    assert [row["url"] for row in rows] == [CHAT, EMBEDDINGS] * 5
    for model in mixed.models:
        part = salted(source, tmp_path / "part", salt="b", model=model, first=6).read_text().splitlines()
        assert [json.loads(line)["body"]["model"] for line in part] == [model] * 3
