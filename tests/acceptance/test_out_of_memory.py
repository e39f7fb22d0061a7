"""The kernel's out-of-memory kill of a real engine at work: certified as its own fault, and no request pays."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.real_fleet import RealFleet
from tests.faults.memory_group import MemoryGroup, memory_group
from tests.waiting import wait_until

pytestmark = [pytest.mark.engine, pytest.mark.kill, pytest.mark.slow_engine]


@pytest.fixture
def group() -> Iterator[MemoryGroup]:
    with memory_group() as made:
        if made is None:
            pytest.skip("no control group with a memory limit can be made here (needs root)")
        yield made


@pytest.fixture
def small_node(tmp_path: Path, group: MemoryGroup) -> Iterator[RealFleet]:
    node = RealFleet(tmp_path, group=group)
    node.start(workers=1)
    yield node
    node.close()


def test_a_kill_for_want_of_memory_is_certified_and_no_request_pays(small_node: RealFleet, group: MemoryGroup) -> None:
    """The limit is drawn right above what the node holds; filling its KV cache takes it over."""
    (life,) = small_node.ready(workers=1)
    group.tighten()
    job = small_node.job(256, max_tokens=100, text="out of memory " * 20)
    wait_until(lambda: small_node.cause(life) is not None, timeout_s=60, description="the death is certified")
    group.lift()
    assert group.kills() >= 1, "the kernel has killed"
    assert small_node.cause(life) == "self", small_node.last_words()
    assert [event["out_of_memory"] for event in small_node.events("worker_died")] == [True]
    job.await_good()
    reasons = [event["reason"] for event in small_node.events("target_set")]
    assert reasons[-1] == "memory did not suffice for more in an earlier life"
