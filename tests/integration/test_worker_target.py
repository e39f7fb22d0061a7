"""A worker process and its target, with Celery and a real Redis: kept full, and begun low after want of memory."""

import random
import time
from pathlib import Path

import redis

from tests.servers import Server
from tests.waiting import wait_until
from tests.worker_parts import Job, make_batch
from tests.worker_process import started_worker
from worker.options import SimOptions

PLACES = 16
ROWS_EACH = 8
BATCHES = 40
MOST_RUNS = 6
"""Others use these cores too: until in one run no claim had to wait for a processor."""


def test_the_next_prompts_are_there_before_the_engine_needs_them(
    valkey: redis.Redis, valkey_server: Server, tmp_path: Path
) -> None:
    """Heavy-tailed lengths: from when the engine is full until little is left, no sample finds a place without work."""
    job, rng = Job(valkey), random.Random(7)
    sim = SimOptions(seconds=0.02, places=PLACES)
    with started_worker(
        valkey_server,
        tmp_path / "worker.log",
        sim=sim,
        BAKEHOUSE_PRESENCE_S="0.05",
        BAKEHOUSE_PUBLISH_S="0.1",
    ) as worker:

        def sample(first: int) -> list[int]:
            """Requests in flight, while the worker runs micro-batches from `first` on."""
            for mb in range(first, first + BATCHES):
                tokens = [min(120, 1 + int(rng.lognormvariate(2.0, 1.0))) for _ in range(ROWS_EACH)]
                job.offer(make_batch(ROWS_EACH, mb=mb, tokens=tokens))
            worker.hint(*range(first, first + BATCHES))
            wait_until(
                lambda: int(worker.presence()["in_flight"]) >= PLACES, timeout_s=10, description="the engine is full"
            )
            samples = []
            while int((said := worker.presence())["results"]) < (first + BATCHES - 12) * ROWS_EACH:
                samples.append(int(said["in_flight"]))
                time.sleep(0.02)
            return samples

        runs = [sample(0)]
        while len(runs) < MOST_RUNS and min(runs[-1]) < PLACES:
            runs.append(sample(len(runs) * BATCHES))
        assert len(runs[-1]) > 50
        assert min(runs[-1]) >= PLACES, [min(samples) for samples in runs]
        assert max(map(max, runs)) < 1.25 * PLACES + ROWS_EACH


def test_after_want_of_memory_a_life_begins_low(valkey: redis.Redis, valkey_server: Server, tmp_path: Path) -> None:
    sim = SimOptions(places=PLACES)
    with started_worker(valkey_server, tmp_path / "worker.log", sim=sim, target_share=0.5) as worker:
        assert worker.presence()["target"] == "10"
        (event,) = [event for event in worker.events() if event["event"] == "target_set"]
        assert (event["target"], event["most"]) == (10, 20)
        assert "earlier life" in event["reason"]
