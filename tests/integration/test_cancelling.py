"""A job that is cancelled, on a real server: what is finished stays, the rest is `cancelled`, whatever breaks."""

import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import redis

from common import keys
from common.wire import MicroBatch
from producer.cancelling import REASON
from producer.journal_reader import JournalReader
from producer.outcome import Outcome
from producer.steering import Wish
from producer.wish_file import leave_wish
from tests.collecting import Bench, FakeEngineWorker, Running, quick_settings, write_input
from tests.jobs import durable_results
from tests.servers import Server
from tests.waiting import wait_until

TOTAL = 2400
AT_ONCE = 40
"""So many requests are fed; the others are unread when the job is cancelled."""
STOP_STATES = ("cancelling", "sealed", "done")


class Holder:
    """What a worker does that is in the middle of its first micro-batch when the job is cancelled."""

    def __init__(self) -> None:
        self.published: list[str] = []

    def publish(self, worker: FakeEngineWorker, job: str, batch: MicroBatch, token: str, got: int) -> None:
        """Two results at once, a third one when it hears of the cancelling; the rest is given back."""
        worker.publish_some(job, batch, token, [0, 1])
        self.published += [batch.requests[i].custom_id for i in (0, 1)]
        while worker.claims.renew(job, [(batch.mb, token)]).state not in STOP_STATES:
            time.sleep(0.02)
        self.published.append(batch.requests[2].custom_id)
        assert worker.publish_some(job, batch, token, [2]) == "OK"
        assert worker.claims.release(job, batch.mb, token=token)


@pytest.fixture
def bench(tmp_path: Path, valkey: redis.Redis, valkey_server: Server) -> Bench:
    """A job of 2,400 good lines, of which the first are fed."""
    return make_bench(tmp_path, valkey_server)


def make_bench(folder: Path, server: Server, **knobs: Any) -> Bench:
    settings = quick_settings(server, max_concurrency=AT_ONCE, **knobs)
    return Bench(folder, server, write_input(folder / "in.jsonl", TOTAL), settings=settings)


def cancel(bench: Bench) -> None:
    """Leave the wish on the job's own host."""
    leave_wish(bench.directory.want_path, Wish.make("cancel"))


def check_cancelled(bench: Bench, outcome: Outcome, finished: list[str], *, total: int = TOTAL) -> None:
    """Order and counts are whole: those in `finished` have their results, all others are cancelled."""
    bench.check_whole(total)
    results = bench.results()
    good = [result["custom_id"] for result in results if result["error"] is None]
    assert sorted(good) == sorted(finished)
    rest = [result for result in results if result["error"] is not None]
    assert {result["error"]["code"] for result in rest} == {"cancelled"}
    assert {result["error"]["message"] for result in rest} == {REASON}
    assert {result["response"]["status_code"] for result in rest} == {499}
    assert [result["line"] for result in rest if result["custom_id"] == f"r{total - 1}"] == [total]
    assert bench.directory.errors_path.read_bytes().count(b"\n") == len(rest)
    counts = outcome.counts
    assert (counts.total, counts.fed, counts.done, counts.blank) == (total, total, total, 0)
    assert (counts.succeeded, counts.failures) == (len(finished), {"cancelled": len(rest)})
    assert (outcome.status, outcome.exit_code, outcome.state) == ("cancelled", 1, "done")


def check_withdrawn(bench: Bench) -> None:
    """Redis knows only that the job is done."""
    client = bench.server.client()
    assert list(client.scan_iter(keys.prefix(bench.job) + "*")) == [keys.info(bench.job).encode()]
    assert client.hmget(keys.info(bench.job), "state", "exit") == [b"done", b"1"]
    assert not client.hexists(keys.JOBS, bench.job)


def test_what_is_finished_stays_and_the_rest_is_cancelled(bench: Bench, valkey_server: Server) -> None:
    holder = Holder()
    with FakeEngineWorker(valkey_server, publish=holder.publish) as worker:
        running = Running(bench.collector())
        wait_until(lambda: holder.published, timeout_s=10, description="a micro-batch is held")
        cancel(bench)
        outcome = running.join()
        assert not worker.errors
        assert len(worker.claimed) == 1, "no claim was granted any more"
    check_cancelled(bench, outcome, holder.published)
    check_withdrawn(bench)
    assert bench.run() == outcome, "a cancelled job ends as it did, without any work"


POINTS = [
    pytest.param("producer.journal:Journal.steer", 1, id="heard, not journaled"),
    pytest.param("producer.helm:say_course", 1, id="journaled, Redis not told"),
    pytest.param("common.claims:Claims.expire", 1, id="nobody renews, not expired"),
    pytest.param("producer.journal:Journal.add_loss", 1, id="expired, loss not noted"),
    pytest.param("common.claims:Claims.state", 1, id="nothing held, not sealed"),
    pytest.param("producer.cancelling:Cancelling._cancel_open", 1, id="sealed and empty, nothing cancelled"),
    pytest.param("producer.cancelling:Cancelling._cancel_unread", 1, id="what was fed is cancelled, the rest not"),
    pytest.param("producer.journal:Journal.set_position", 3, id="the rest cancelled, not committed"),
    pytest.param("producer.output:Output.write", 2, id="committed, not in the ordered file"),
    pytest.param("producer.output:Output.sync", 3, id="in the ordered file, not synced"),
    pytest.param("producer.journal:Journal.finish", 1, id="all written, not finished"),
    pytest.param("producer.collector:withdraw", 1, id="finished, still in Redis"),
]


@pytest.mark.parametrize(("target", "number"), POINTS)
def test_killed_between_two_steps(
    tmp_path: Path, valkey: redis.Redis, valkey_server: Server, target: str, number: int
) -> None:
    """A worker vanishes with a micro-batch of which it has published two results."""
    bench = make_bench(tmp_path, valkey_server)
    finished: list[str] = []

    def vanish(worker: FakeEngineWorker, job: str, batch: MicroBatch, token: str, got: int) -> None:
        worker.publish_some(job, batch, token, [0, 1])
        finished.extend(batch.requests[i].custom_id for i in (0, 1))

    bench.run(until="fed")
    with FakeEngineWorker(valkey_server, publish=vanish) as worker:
        wait_until(lambda: worker.claimed, timeout_s=10, description="a micro-batch is held")
    cancel(bench)
    bench.crash(target, number)
    output = bench.directory.output_path
    durable = output.read_bytes().rpartition(b"\n")[0] if output.exists() else b""
    outcome = bench.run()
    check_cancelled(bench, outcome, finished)
    check_withdrawn(bench)
    assert output.read_bytes().startswith(durable), "what stood in the ordered file stays as it is"


def test_redis_is_flushed_meanwhile(tmp_path: Path, valkey: redis.Redis, valkey_server: Server) -> None:
    """Nothing is offered again; a worker that held something hears of it when it claims again."""
    bench = make_bench(tmp_path, valkey_server)
    answers: list[str] = []
    offered: list[bytes] = []

    def claim_again(worker: FakeEngineWorker, job: str, batch: MicroBatch, token: str, got: int) -> None:
        while worker.claims.renew(job, [(batch.mb, token)]).state != "cancelling":
            time.sleep(0.02)
        valkey.flushall()
        while not answers or answers[-1] in ("NOJOB", "rebuilding"):
            again = worker.claims.claim(job, batch.mb, token=token, worker="w", model="m", digest="d1")
            answers.append(again.answer)
            offered.extend(valkey.scan_iter(keys.prefix(job) + "mb:*"))

    with FakeEngineWorker(valkey_server, publish=claim_again) as worker:
        running = Running(bench.collector())
        wait_until(lambda: worker.claimed, timeout_s=10, description="a micro-batch is held")
        cancel(bench)
        outcome = running.join()
    assert not worker.errors
    assert answers[-1] in STOP_STATES
    assert not offered
    check_cancelled(bench, outcome, [])
    check_withdrawn(bench)


def test_suspects_that_wait_for_their_turn_are_cancelled(
    tmp_path: Path, valkey: redis.Redis, valkey_server: Server
) -> None:
    """Two workers have died of the first micro-batch; each of its requests would travel alone now."""
    bench = make_bench(tmp_path, valkey_server)
    deaths: list[str] = []

    def die(worker: FakeEngineWorker, job: str, batch: MicroBatch, token: str, got: int) -> None:
        if batch.mb == 1:
            deaths.append(worker.incarnation)
            worker.client.hset(keys.DIED, worker.incarnation, "outside")
            worker.incarnation += "+"

    with FakeEngineWorker(valkey_server, publish=die) as worker:
        running = Running(bench.collector())
        wait_until(lambda: len(deaths) == 2, timeout_s=10, description="two deaths")
        wait_until(lambda: solos(bench), timeout_s=10, description="there are suspects")
        cancel(bench)
        outcome = running.join()
    assert not worker.errors
    check_cancelled(bench, outcome, [])
    check_withdrawn(bench)


def solos(bench: Bench) -> int:
    """Micro-batches of one suspect."""
    with JournalReader.open(bench.directory.journal_path) as journal:
        return sum(row.kind == "solo" for row, _ in journal.open_micro_batches())


def test_bad_lines_keep_their_own_error(tmp_path: Path, valkey: redis.Redis, valkey_server: Server) -> None:
    source = write_input(tmp_path / "in.jsonl", 30)
    lines = source.read_text().splitlines()
    lines[3], lines[20], lines[25] = "", "{", lines[2]
    source.write_text("\n".join(lines))
    bench = Bench(tmp_path, valkey_server, source, settings=quick_settings(valkey_server, max_concurrency=8))
    bench.run(until="fed")
    cancel(bench)
    outcome = bench.run()
    codes = Counter(result["error"]["code"] for result in bench.results())
    assert codes == outcome.counts.failures == {"invalid_json": 1, "duplicate_custom_id": 1, "cancelled": 27}
    assert [result["line"] for result in bench.results()] == [line for line in range(1, 31) if line != 4]
    assert (outcome.counts.total, outcome.counts.blank, outcome.status) == (29, 1, "cancelled")


def test_a_job_that_nobody_has_begun(tmp_path: Path, valkey: redis.Redis, valkey_server: Server) -> None:
    """No worker is live, so nobody knows which models there are: no line is judged, each is cancelled."""
    source = write_input(tmp_path / "in.jsonl", 20, model=None)
    bench = Bench(tmp_path, valkey_server, source, model=None)
    cancel(bench)
    check_cancelled(bench, bench.run(), [], total=20)


def test_redis_is_gone_for_good(tmp_path: Path, own_server: Server) -> None:
    """A job ends without it once the time to wait for anything is over; when it is back the job is taken out of it."""
    bench = make_bench(tmp_path, own_server, give_up_after_s=1.0)
    bench.run(until="fed")
    cancel(bench)
    own_server.kill()
    check_cancelled(bench, bench.run(), [])
    own_server.start()
    bench.run()
    check_withdrawn(bench)


def test_redis_goes_in_the_middle(tmp_path: Path, own_server: Server) -> None:
    bench = make_bench(tmp_path, own_server, give_up_after_s=1.0)
    holder = Holder()
    with FakeEngineWorker(own_server, publish=holder.publish):
        running = Running(bench.collector())
        wait_until(lambda: durable_results(bench.jobs) == 2, timeout_s=10, description="two results are durable")
        own_server.kill()
        cancel(bench)
        outcome = running.join()
        own_server.start()
        assert bench.run() == outcome, "whoever still holds something of it hears that it is done"
    check_cancelled(bench, outcome, holder.published[:2])
    check_withdrawn(bench)
