"""What tests of a worker share: a job as it sees one, and its parts without Celery, on each of the servers."""

from collections.abc import Iterator

import pytest
import redis

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
