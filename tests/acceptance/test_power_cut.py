"""The power goes away on the journal's host: what is on its disk then is enough, whatever of the unsynced is missing.

One real run is recorded, call by call. Its disk is rebuilt as it was at many moments, with what was synced and no more,
or with some of the rest; each time the same command goes on from there.
"""

import gzip
import json
import os
import random
import shutil
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from common.claims import Claims
from common.settings import Settings
from producer.collector import Collector
from producer.job_directory import JobDirectory
from producer.job_spec import JobSpec
from tests.collecting import FakeEngineWorker, quick_settings, write_input
from tests.faults.power_cut import Disk
from tests.faults.system_calls import STRACE, Step, read_steps, record
from tests.processes import environment
from tests.servers import VALKEY, Server

ROWS = 60
SEED = int(os.environ.get("POWER_CUT_SEED", "1"))
CUTS = int(os.environ.get("POWER_CUT_CUTS", "30"))
"""Moments a way of losing the unsynced; 0: all of them."""

pytestmark = pytest.mark.skipif(STRACE is None, reason="strace is not installed (Debian: apt-get install strace)")


class Recording(NamedTuple):
    """One run: the steps of its process, and the host's folder as it was before."""

    server: Server
    host: Path
    before: Path
    steps: Sequence[Step]


class Known(NamedTuple):
    """What Redis may know of the job at a moment."""

    settled: set[int]
    """Seqs whose entries may be deleted there."""
    epoch: int
    manifest: str
    mb_high: int


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recording]:
    """A whole run of a packed input, with every tenth line a bad one, on another host's Redis."""
    folder = tmp_path_factory.mktemp("power")
    server = Server(VALKEY, folder / "data").start()
    host, before = folder / "host", folder / "before"
    before.mkdir()
    lines = write_input(folder / "lines.jsonl", ROWS).read_bytes().splitlines()
    bad = [line if number % 10 else b"{" for number, line in enumerate(lines)]
    (before / "in.jsonl.gz").write_bytes(gzip.compress(b"\n".join(bad)))
    shutil.copytree(before, host)
    settings = hasty_settings(server)
    knobs = {f"BAKEHOUSE_{name.upper()}": str(getattr(settings, name)) for name in settings.model_fields_set}
    spec = make_spec(host, server)
    arguments = (
        "run",
        spec.input,
        "-o",
        spec.output,
        "--model",
        "m",
        "--jobs",
        host / "new" / "jobs",
        "--max-concurrency",
        8,
    )
    command = [sys.executable, "-m", "tests.faults.telling", *map(str, (folder / "marks", *arguments))]
    with FakeEngineWorker(server):
        code = record(command, trace=folder / "trace", env=environment(**knobs), timeout_s=60)
    assert code == 1
    yield Recording(server, host, before, read_steps(folder / "trace", root=host, marks=folder / "marks"))
    server.stop()


def hasty_settings(server: Server) -> Settings:
    """Settings by which work that was offered again waits only for a moment for who may still hold it."""
    return quick_settings(server, renew_s=0.05, expire_s=0.2, look_s=0.05)


def make_spec(host: Path, server: Server) -> JobSpec:
    """What the recorded command asks for."""
    return JobSpec.from_settings(
        hasty_settings(server),
        input=str(host / "in.jsonl.gz"),
        output=str(host / "out.jsonl"),
        model="m",
        redis="given",
    )


def moments(steps: Sequence[Step]) -> list[int]:
    """How many steps were done when the power went away: before and after each that makes something sure or known."""
    near = {
        at + after
        for at, step in enumerate(steps)
        for after in (0, 1)
        if step.kind in ("sync", "rename", "link", "mark")
    }
    return sorted(near) if not CUTS else sorted(random.Random(SEED).sample(sorted(near), CUTS))


@pytest.mark.parametrize("loses", ["all of the unsynced", "some of the unsynced"])
def test_the_same_command_goes_on_after_a_power_cut(recording: Recording, loses: str) -> None:
    cuts = moments(recording.steps)
    seen = []
    for done in cuts:
        chance = None if loses.startswith("all") else random.Random(f"{SEED}/{done}")
        seen.append(check_cut(recording, done, chance))
    assert max(len(known.settled) for known in seen) > ROWS // 2, "no cut was after most of the work"
    assert not all(known.settled for known in seen), "no cut was before it"


def check_cut(recording: Recording, done: int, chance: random.Random | None) -> Known:
    """Cut the power after so many steps, go on, and judge; returns what Redis knew."""
    host, output = recording.host, recording.host / "out.jsonl"
    known = known_to_redis(recording.steps[:done])
    lost = cut_power(recording, done, chance)
    directory = found_job(host)
    durable = journaled(directory) if directory else set()
    assert known.settled <= durable, f"step {done}: deleted in Redis, and not in the journal"
    outcome = go_on(recording, directory, known)
    assert outcome == (1, ROWS), f"step {done}"
    content = output.read_bytes()
    whole = lost[: lost.rfind(b"\n") + 1]
    assert content.startswith(whole), f"step {done}: a line that could be read has changed"
    results = [json.loads(line) for line in content.split(b"\n")[:-1]]
    assert [result["line"] for result in results] == list(range(1, ROWS + 1)), f"step {done}"
    failed = b"".join(
        line + b"\n" for line, result in zip(content.split(b"\n")[:-1], results, strict=True) if result["error"]
    )
    (found,) = JobDirectory.list_all(host / "new" / "jobs")
    assert found.errors_path.read_bytes() == failed
    return known


def cut_power(recording: Recording, done: int, chance: random.Random | None) -> bytes:
    """Leave in the host's folder what its disk has; returns the ordered file as it could be read before."""
    host = recording.host
    shutil.rmtree(host)
    shutil.copytree(recording.before, host)
    disk = Disk(host)
    shutil.rmtree(host)
    host.mkdir()
    disk.follow(recording.steps[:done])
    disk.cut(chance=chance)
    return disk.live(host / "out.jsonl")


def known_to_redis(steps: Sequence[Step]) -> Known:
    """What the marks among `steps` say."""
    facts: dict[str, Any] = {"epoch": 0, "manifest": "", "mb_high": 0}
    settled: set[int] = set()
    for step in steps:
        if step.kind == "mark":
            said = json.loads(step.data)
            settled.update(said.pop("settled", ()))
            facts |= {**said, "mb_high": max(facts["mb_high"], said.get("mb_high", 0))}
    return Known(settled, **facts)


def found_job(host: Path) -> JobDirectory | None:
    """The job that the disk has, if it has any."""
    jobs = JobDirectory.list_all(host / "new" / "jobs")
    assert len(jobs) <= 1
    return jobs[0] if jobs else None


def journaled(directory: JobDirectory) -> set[int]:
    """Seqs with a result in the journal, which must be sound."""
    if not directory.journal_path.exists():
        return set()
    with closing(sqlite3.connect(directory.journal_path)) as journal:
        assert journal.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        if not journal.execute("PRAGMA user_version").fetchone()[0]:
            return set()
        return {seq for (seq,) in journal.execute("SELECT seq FROM result")}


def go_on(recording: Recording, directory: JobDirectory | None, known: Known) -> tuple[int, int]:
    """The same command, on a Redis that knows as much of the job as it may; its exit code, and how many are done."""
    server, jobs = recording.server, recording.host / "new" / "jobs"
    settings, spec = hasty_settings(server), make_spec(recording.host, server)
    know_again(server, directory, known)
    same = JobDirectory.find_same(jobs, spec) or JobDirectory.create(jobs, spec, settings=settings)
    same.check_input_unchanged()
    with FakeEngineWorker(server):
        collector = Collector(same, settings=settings, client=server.client())
        outcome = collector.run(until="done")
    return outcome.exit_code, outcome.counts.done


def know_again(server: Server, directory: JobDirectory | None, known: Known) -> None:
    """Let Redis know no more of the job than `known`."""
    server.client().flushall(asynchronous=False)
    if directory is None or not known.epoch:
        return
    owned = Claims(server.client()).own(
        directory.spec.job,
        epoch=known.epoch,
        state="open",
        mb_high=known.mb_high,
        digests={},
        manifest=known.manifest,
    )
    assert owned
