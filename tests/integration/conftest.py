"""What tests of a worker share: a job as it sees one, and its parts without Celery, on each of the servers.

And a job that has failed in part, for reruns.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tests.collecting import write_input
from tests.failing import ROWS, Failing, ids
from tests.servers import Server
from tests.worker_parts import Job, WorkerParts, worker_parts


@pytest.fixture
def job(any_redis: redis.Redis) -> Job:
    """The collector's side of one job."""
    return Job(any_redis)


@pytest.fixture
def worker(any_redis: redis.Redis) -> Iterator[WorkerParts]:
    """A worker's desk, keeper and loop over a simulated engine."""
    with worker_parts(any_redis) as parts:
        yield parts


@pytest.fixture
def failing_job(tmp_path: Path, valkey: redis.Redis, valkey_server: Server) -> Failing:
    """A finished job of 40 requests, three of which failed."""
    job = Failing(tmp_path, valkey_server, write_input(tmp_path / "in.jsonl", ROWS))
    assert job.go(ids(0, 7, 39)) == 1
    return job
