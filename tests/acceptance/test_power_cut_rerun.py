"""The power goes away while a finished job runs again: the same command goes on, and the old file is kept."""

import json
import random
import shutil
import sys
from collections.abc import Iterator

import pytest

from producer.collector import Collector
from producer.job_directory import JobDirectory
from producer.journal_reader import read_checkpoint
from producer.rerun import begin_rerun
from producer.selection import Selection
from tests.acceptance.test_power_cut import (
    SEED,
    Recording,
    cut_power,
    hasty_settings,
    know_again,
    known_to_redis,
    moments,
)
from tests.collecting import FakeEngineWorker, write_input
from tests.failing import ROWS, Failing, failing, ids
from tests.faults.system_calls import STRACE, read_steps, record
from tests.processes import environment
from tests.servers import VALKEY, Server

BAD = ids(*range(0, ROWS, 3))

pytestmark = pytest.mark.skipif(STRACE is None, reason="strace is not installed (Debian: apt-get install strace)")


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recording]:
    """A whole rerun of a job of which a third had failed."""
    folder = tmp_path_factory.mktemp("power")
    server = Server(VALKEY, folder / "data").start()
    host, before = folder / "host", folder / "before"
    host.mkdir()
    settings = hasty_settings(server)
    job = Failing(host, server, write_input(host / "in.jsonl", ROWS), settings=settings)
    assert job.go(BAD) == 1
    shutil.copytree(host, before)
    knobs = {f"BAKEHOUSE_{name.upper()}": str(getattr(settings, name)) for name in settings.model_fields_set}
    arguments = (folder / "marks", "rerun", job.job, "--jobs", job.jobs)
    command = [sys.executable, "-m", "tests.faults.telling", *map(str, arguments)]
    with FakeEngineWorker(server, publish=failing(())):
        code = record(command, trace=folder / "trace", env=environment(**knobs), timeout_s=120)
    assert code == 0
    yield Recording(server, host, before, read_steps(folder / "trace", root=host, marks=folder / "marks"))
    server.stop()


@pytest.mark.parametrize("loses", ["all of the unsynced", "some of the unsynced"])
def test_a_rerun_goes_on_after_a_power_cut(recording: Recording, loses: str) -> None:
    rounds = set()
    for done in (0, *moments(recording.steps), len(recording.steps)):
        chance = None if loses.startswith("all") else random.Random(f"{SEED}/{done}")
        rounds.add(check_cut(recording, done, chance))
    assert rounds == {(0, "done"), (1, "open"), (1, "done")}, "a part of the rerun was not cut"


def check_cut(recording: Recording, done: int, chance: random.Random | None) -> tuple[int, str]:
    """Cut the power after so many steps, give the same command again, and judge; returns where the job stood then."""
    host, server = recording.host, recording.server
    cut_power(recording, done, chance)
    (directory,) = JobDirectory.list_all(host / "jobs")
    checkpoint = read_checkpoint(directory.journal_path)
    assert checkpoint is not None, f"step {done}"
    know_again(server, directory, known_to_redis(recording.steps[:done]))
    if checkpoint.state != "done" or checkpoint.counts.failed:
        begin_rerun(directory, Selection(), ids=None)
    settings = hasty_settings(server)
    with FakeEngineWorker(server, publish=failing(())):
        collector = Collector(directory, settings=settings, client=server.client())
        assert collector.run(until="done").exit_code == 0, f"step {done}"
    before = (recording.before / "out.jsonl").read_bytes().splitlines()
    now = (host / "out.jsonl").read_bytes().splitlines()
    assert [json.loads(line)["custom_id"] for line in now] == [f"r{number}" for number in range(ROWS)], f"step {done}"
    assert [line for n, line in enumerate(now) if n % 3] == [line for n, line in enumerate(before) if n % 3]
    assert all(json.loads(line)["response"]["body"]["text"] == "round 1round 1" for line in now[::3]), f"step {done}"
    assert (host / "out.1.jsonl").read_bytes().splitlines() == before, f"step {done}: the old file is lost"
    assert directory.errors_path.read_bytes() == b""
    return checkpoint.round, checkpoint.state
