"""Another order of work: all the same every line is fed once, and its result stands in its place."""

import json
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import redis

from common import keys
from common.errors import InterruptedJobError
from common.settings import Order
from common.wire import MicroBatch
from producer.journal_reader import JournalReader, MicroBatchRow, read_checkpoint
from producer.rerun import begin_rerun
from producer.selection import Selection
from producer.steering import Wish
from producer.wish_file import leave_wish
from tests.collecting import Bench, FakeEngineWorker, Running, quick_settings
from tests.failing import failing, ids
from tests.servers import Server
from tests.waiting import wait_until

ROWS = 90
BLOCK = 20
URLS = {"/v1/chat/completions": "messages", "/v1/completions": "prompt"}
ORDERS: list[Order] = ["prefix", "length"]
POINTS = [
    pytest.param("producer.journal:Journal.add_micro_batches", 3, id="read and arranged, not journaled"),
    pytest.param("common.claims:Claims.offer", 2, id="journaled, not offered"),
    pytest.param("producer.hints:Hints.send", 3, id="offered, not hinted"),
    pytest.param("producer.journal:Journal.settle", 2, id="received, not committed"),
]


def write_mixed(path: Path, *, models: str = "mn", twice: tuple[int, ...] = ()) -> Path:
    """Lines that mix models, endpoints, beginnings and lengths; those after `twice` repeat these."""
    with path.open("w") as file:
        for number in (*range(ROWS), *twice):
            url, prompt = list(URLS)[number % 2], f"{'ab'[number % 3 % 2]} {number}"
            body: dict[str, Any] = {"model": models[number // 3 % len(models)], "max_tokens": 1 + number * 37 % 100}
            body[URLS[url]] = [{"role": "user", "content": prompt}] if url.endswith("chat/completions") else prompt
            file.write(json.dumps({"custom_id": f"r{number}", "method": "POST", "url": url, "body": body}) + "\n")
    return path


def make_bench(folder: Path, server: Server, order: Order, **more: Any) -> Bench:
    """A job of mixed lines that is arranged in blocks of 20."""
    settings = quick_settings(server, order=order, max_concurrency=BLOCK, pause_above=1.0)
    return Bench(folder, server, write_mixed(folder / "in.jsonl", **more), model=None, settings=settings)


def fed(bench: Bench) -> int:
    """Requests in the journal, 0 before it has its tables."""
    checkpoint = read_checkpoint(bench.directory.journal_path)
    return checkpoint.counts.fed if checkpoint else 0


def micro_batches(bench: Bench) -> list[MicroBatchRow]:
    """All that the job ever had."""
    with JournalReader.open(bench.directory.journal_path) as journal:
        found = [journal.micro_batch(mb) for mb in range(1, journal.checkpoint().mb_high + 1)]
    return [row for row in found if row is not None]


@pytest.mark.parametrize("order", ORDERS)
def test_each_line_once_and_one_endpoint_a_micro_batch(
    tmp_path: Path, valkey: redis.Redis, valkey_server: Server, order: Order
) -> None:
    bench = make_bench(tmp_path, valkey_server, order)
    places: list[int] = []

    def watch(worker: FakeEngineWorker, job: str, batch: MicroBatch, token: str, got: int) -> None:
        assert len({request.url for request in batch.requests}) == 1
        with JournalReader.open(bench.directory.journal_path) as journal:
            counts = journal.checkpoint()
            places.append(counts.counts.done - counts.frontier)
        worker.publish_all(job, batch, token, got)

    with (
        FakeEngineWorker(valkey_server, publish=watch) as one,
        FakeEngineWorker(valkey_server, models=["n"], publish=watch) as other,
    ):
        bench.run()
    assert not one.errors + other.errors
    bench.check_whole(ROWS)
    times = Counter(seq for row in micro_batches(bench) for seq in row.seqs)
    assert times == Counter(range(ROWS))
    assert [seq for row in micro_batches(bench) for seq in row.seqs] != list(range(ROWS))
    assert max(places) <= 2 * BLOCK, "results wait for their place: a block's and the window's at most"


@pytest.mark.parametrize(("target", "number"), POINTS)
@pytest.mark.parametrize("order", ORDERS)
def test_killed_in_the_middle_of_a_block(
    tmp_path: Path, valkey: redis.Redis, valkey_server: Server, order: Order, target: str, number: int
) -> None:
    bench = make_bench(tmp_path, valkey_server, order, twice=(0, 1, 2, 40))
    with FakeEngineWorker(valkey_server), FakeEngineWorker(valkey_server, models=["n"]):
        bench.crash(target, number)
        with JournalReader.open(bench.directory.journal_path) as journal:
            assert journal.checkpoint().counts.fed < ROWS
        outcome = bench.run()
    assert [result["custom_id"] for result in bench.results()] == [
        *(f"r{i}" for i in range(ROWS)),
        *["r0", "r1", "r2", "r40"],
    ]
    assert outcome.counts.failures == {"duplicate_custom_id": 4}
    times = Counter(seq for row in micro_batches(bench) for seq in row.seqs)
    assert times == Counter(range(ROWS))


@pytest.mark.parametrize("order", ORDERS)
def test_lines_fed_out_of_order_are_passed_over(
    tmp_path: Path, valkey: redis.Redis, valkey_server: Server, order: Order
) -> None:
    """A collector that ends with a part of a block fed leaves gaps; the next one fills them."""
    bench = make_bench(tmp_path, valkey_server, order, models="m")

    def publish_three(worker: FakeEngineWorker, job: str, batch: MicroBatch, token: str, got: int) -> None:
        if len(worker.claimed) <= 3:
            worker.publish_all(job, batch, token, got)

    with FakeEngineWorker(valkey_server, publish=publish_three, target=2):
        running = Running(bench.collector())
        wait_until(lambda: fed(bench) == BLOCK + 6, timeout_s=10, description="a part of the second block is fed")
        running.collector.stop()
        with pytest.raises(InterruptedJobError):
            running.join()
    with JournalReader.open(bench.directory.journal_path) as journal:
        checkpoint, known = journal.checkpoint(), journal.next_seq()
    assert checkpoint.counts.fed < known, "some that were fed stand behind some that were not"
    assert checkpoint.input_seq < known
    with FakeEngineWorker(valkey_server):
        bench.run()
    bench.check_whole(ROWS)
    assert Counter(seq for row in micro_batches(bench) for seq in row.seqs) == Counter(range(ROWS))


@pytest.mark.parametrize("order", ["input", *ORDERS])
def test_no_micro_batch_near_the_end_is_more_than_a_worker_s_share(
    tmp_path: Path, valkey: redis.Redis, valkey_server: Server, order: Order
) -> None:
    settings = quick_settings(valkey_server, order=order, batch_size=32)
    source = write_mixed(tmp_path / "in.jsonl", models="m")
    bench = Bench(tmp_path, valkey_server, source, model="m", settings=settings)
    places, workers = 8, 4
    with ExitStack() as fleet:
        for _ in range(workers):
            fleet.enter_context(FakeEngineWorker(valkey_server, target=places))
        wait_until(
            lambda: len(list(valkey.scan_iter(keys.worker("*")))) == workers, timeout_s=10, description="all are there"
        )
        bench.run()
    bench.check_whole(ROWS)
    behind, sizes = ROWS, []
    for row in micro_batches(bench):
        sizes.append(len(row.seqs))
        assert len(row.seqs) <= -(-behind // workers), "its share of what was left"
        behind -= len(row.seqs)
    assert (max(sizes), sizes[-1]) == (places, 1)


def test_a_rerun_keeps_the_order_of_its_job(tmp_path: Path, valkey: redis.Redis, valkey_server: Server) -> None:
    bench = make_bench(tmp_path, valkey_server, "length", models="m")
    bad = ids(*range(0, ROWS, 3))
    with FakeEngineWorker(valkey_server, publish=failing(bad)):
        bench.run()
    begin_rerun(bench.directory, Selection.make((), ()), ids=None)
    before = len(micro_batches(bench))
    with FakeEngineWorker(valkey_server, publish=failing(ids(3))):
        bench.crash("common.claims:Claims.offer", 2)
        bench.run()
    bench.check_whole(ROWS)
    assert [result["custom_id"] for result in bench.results() if result["error"]] == ["r3"]
    again = [seq for row in micro_batches(bench)[before:] for seq in row.seqs]
    assert sorted(again) == list(range(0, ROWS, 3)) != again


def test_a_cancelled_job_answers_what_was_held_back(tmp_path: Path, valkey: redis.Redis, valkey_server: Server) -> None:
    bench = make_bench(tmp_path, valkey_server, "prefix", models="m")

    def cancel(worker: FakeEngineWorker, job: str, batch: MicroBatch, token: str, got: int) -> None:
        if len(worker.claimed) == 2:
            leave_wish(bench.directory.want_path, Wish.make("cancel"))
        worker.publish_all(job, batch, token, got)

    with FakeEngineWorker(valkey_server, publish=cancel):
        outcome = bench.run()
    assert outcome.status == "cancelled"
    bench.check_whole(ROWS)
