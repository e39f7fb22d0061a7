"""A collector killed between any two of its steps, then a new one: every result once, in order, nothing lost."""

from pathlib import Path

import pytest
import redis

from common.wire import MicroBatch
from tests.collecting import Bench, FakeEngineWorker, write_input
from tests.servers import Server

POINTS = [
    pytest.param("producer.journal:Journal.take", 1, id="Redis has the epoch, the journal not"),
    pytest.param("common.claims:Claims.offer", 1, id="journaled, not offered"),
    pytest.param("producer.hints:Hints.send", 1, id="offered, not hinted"),
    pytest.param("producer.journal:Journal.settle", 2, id="received, not committed"),
    pytest.param("common.claims:Claims.drop_entries", 2, id="committed, not deleted in Redis"),
    pytest.param("common.claims:Claims.close", 2, id="deleted, not closed"),
    pytest.param("producer.output:Output.write", 2, id="closed, not in the ordered file"),
    pytest.param("producer.output:Output.sync", 3, id="in the ordered file, not synced"),
    pytest.param("producer.journal:Journal.forget_pending", 2, id="synced, still in the journal"),
    pytest.param("producer.journal:Journal.add_loss", 1, id="expired, loss not noted"),
    pytest.param("producer.journal:Journal.finish", 1, id="all written, not finished"),
    pytest.param("producer.collector:withdraw", 1, id="finished, still in Redis"),
]


@pytest.mark.parametrize(("target", "number"), POINTS)
def test_killed_between_two_steps(
    tmp_path: Path, valkey: redis.Redis, valkey_server: Server, target: str, number: int
) -> None:
    bench = Bench(tmp_path, valkey_server, write_input(tmp_path / "in.jsonl", 60))

    def vanish_once(worker: FakeEngineWorker, job: str, batch: MicroBatch, token: str, got: int) -> None:
        """Results come in two waves: all but those of one micro-batch, and those after its hold has expired."""
        if len(worker.claimed) != 3:
            worker.publish_all(job, batch, token, got)

    with FakeEngineWorker(valkey_server, publish=vanish_once, share=3) as worker:
        bench.crash(target, number)
        output = bench.directory.output_path
        durable = output.read_bytes().rsplit(b"\n", 1)[0] if output.exists() else b""
        outcome = bench.run()
    assert not worker.errors
    bench.check_whole(60)
    assert output.read_bytes().startswith(durable), "what stood in the ordered file stays as it is"
    assert (outcome.counts.done, outcome.counts.total, outcome.counts.failed) == (60, 60, 0)
    assert not list(valkey.scan_iter(f"bakehouse:{{{bench.job}}}:mb:*"))
