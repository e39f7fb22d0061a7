"""A rolling upgrade over a new wire version: both versions side by side on one Redis, each job whole.

The other version is this program, copied, with its wire version raised: real processes of both.
"""

import json
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from common import keys
from common.broker import PRIORITIES, TASK_NAME, make_app, make_queue
from common.settings import Settings
from common.wire import WIRE_VERSION
from tests.jobs import check_whole, write_requests
from tests.processes import ROOT, environment, live_workers, producer_command, read_results, started, worker_command
from tests.servers import Server
from tests.waiting import wait_until

pytestmark = pytest.mark.deploy

ROWS = 400
SIMULATED = ("--engine", "sim", "--model", "m", "--sim-places", "8", "--sim-seconds", "0.02")
KNOBS = {"BAKEHOUSE_BATCH_SIZE": "8", "BAKEHOUSE_LOOK_S": "0.5"}


class Version:
    """One version of the program: its commands, and what they are told of where its code is."""

    def __init__(self, code: Path) -> None:
        self.variables = {**KNOBS, "PYTHONPATH": str(code)}

    def run(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        """`producer ARGUMENTS` to its end."""
        return subprocess.run(
            producer_command(*arguments),
            env=environment(**self.variables),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> Version:
    """The next version."""
    code = tmp_path_factory.mktemp("next")
    for package in ("common", "producer", "worker"):
        shutil.copytree(ROOT / package, code / package, ignore=shutil.ignore_patterns("__pycache__"))
    wire = code / "common" / "wire.py"
    wire.write_text(
        wire.read_text().replace(f"WIRE_VERSION = {WIRE_VERSION}\n", f"WIRE_VERSION = {WIRE_VERSION + 1}\n")
    )
    asked = [sys.executable, "-P", "-c", "from common.wire import WIRE_VERSION; print(WIRE_VERSION)"]
    said = subprocess.run(asked, env=environment(PYTHONPATH=str(code)), capture_output=True, text=True, check=True)
    assert int(said.stdout) == WIRE_VERSION + 1
    return Version(code)


@pytest.fixture(scope="module")
def old() -> Version:
    """This one."""
    return Version(ROOT)


@pytest.fixture
def fleet(own_server: Server, old: Version, new: Version, tmp_path: Path) -> Iterator[Server]:
    """One worker of each."""
    with ExitStack() as running:
        for name, version in {"old": old, "new": new}.items():
            before = len(live_workers(own_server))
            command = worker_command("start", "--redis-url", own_server.url, *SIMULATED)
            running.enter_context(started(command, log=tmp_path / f"{name}.log", **version.variables))
            wait_until(partial(has_more, own_server, before), timeout_s=90, description=f"the {name} worker is ready")
        yield own_server


def has_more(server: Server, before: int) -> bool:
    """Whether another worker is ready."""
    return len(live_workers(server)) > before


def workers_by_wire(server: Server) -> dict[int, str]:
    """Wire version -> incarnation of the worker that has it."""
    client = server.client()
    names = [name.decode() for name in client.scan_iter(keys.WORKER_PREFIX + "*")]
    return {int(client.hget(name, "wire") or 0): name.removeprefix(keys.WORKER_PREFIX) for name in names}


def test_jobs_of_both_versions_run_whole_at_once(fleet: Server, old: Version, new: Version, tmp_path: Path) -> None:
    source = write_requests(tmp_path / "in.jsonl", ROWS, model="m")
    where = ("--redis-url", fleet.url, "--jobs")
    with ExitStack() as running:
        processes = {
            name: running.enter_context(
                started(
                    producer_command("run", source, "-o", tmp_path / f"{name}.jsonl", *where, tmp_path / name),
                    log=tmp_path / f"{name}-job.log",
                    **version.variables,
                )
            )
            for name, version in {"old": old, "new": new}.items()
        }
        assert {name: process.wait(150) for name, process in processes.items()} == {"old": 0, "new": 0}
    by_wire = workers_by_wire(fleet)
    for name, wire in {"old": WIRE_VERSION, "new": WIRE_VERSION + 1}.items():
        check_whole(tmp_path / f"{name}.jsonl", ROWS)
        counted = Counter(result["meta"]["worker"] for result in read_results(tmp_path / f"{name}.jsonl"))
        assert set(counted) == {by_wire[wire]}, "each job by its own version alone"
    assert handed_back(tmp_path / "old.log") == handed_back(tmp_path / "new.log") == [], "each has queues of its own"


def handed_back(log: Path) -> list[str]:
    """Why a worker gave hints back, as often as it warned of it."""
    told = [json.loads(line) for line in log.read_text().splitlines() if line[:1] == "{"]
    return [event["reason"] for event in told if event["event"] == "hint_returned"]


def test_a_job_waits_for_a_worker_that_can_read_it(
    own_server: Server, old: Version, new: Version, tmp_path: Path
) -> None:
    source = write_requests(tmp_path / "in.jsonl", 40, model="m")
    where = ("--redis-url", own_server.url, "--jobs", tmp_path / "jobs")
    log = tmp_path / "job.log"
    serve = worker_command("start", "--redis-url", own_server.url, *SIMULATED)
    with started(serve, log=tmp_path / "old.log", **old.variables):
        wait_until(lambda: live_workers(own_server), timeout_s=60, description="the old worker is ready")
        command = producer_command("run", source, "-o", tmp_path / "out.jsonl", "--model", "m", *where)
        with started(command, log=log, **new.variables) as job:
            wait_until(
                lambda: "no live worker serves m" in log.read_text(),
                timeout_s=60,
                description="it says for whom it waits",
            )
            with started(serve, log=tmp_path / "new.log", **new.variables):
                assert job.wait(90) == 0, log.read_text()
    check_whole(tmp_path / "out.jsonl", 40)


def send_hint(server: Server, *, version: int) -> None:
    """A hint for the model `m`."""
    make_app(Settings(redis_url=server.url)).send_task(
        TASK_NAME,
        args=[version, "newer", 0, 8],
        queue=make_queue(keys.queue("m")),
        priority=PRIORITIES["normal"],
        argsrepr="job=newer mb=0 n=8",
        ignore_result=True,
    )


def test_a_hint_that_cannot_be_read_goes_back_and_costs_little(
    own_server: Server, old: Version, tmp_path: Path
) -> None:
    serve = worker_command("start", "--redis-url", own_server.url, *SIMULATED)
    log, client = tmp_path / "old.log", own_server.client()
    waiting = [f"{keys.queue('m')}{suffix}" for suffix in ("", "\x06\x166")]
    with started(serve, log=log, **old.variables):
        wait_until(lambda: live_workers(own_server), timeout_s=60, description="the old worker is ready")
        send_hint(own_server, version=WIRE_VERSION + 1)
        wait_until(lambda: handed_back(log), timeout_s=30, description="it is handed back")
    assert sum(client.llen(name) for name in waiting) == 1, "and waits for a worker that can"


def test_a_job_stays_with_the_version_that_began_it(
    own_server: Server, old: Version, new: Version, tmp_path: Path
) -> None:
    source = write_requests(tmp_path / "in.jsonl", ROWS, model="m")
    where = ("--redis-url", own_server.url, "--jobs", tmp_path / "jobs")
    job = ("run", source, "-o", tmp_path / "out.jsonl", "--job-id", "j", *where)
    with started(
        worker_command("start", "--redis-url", own_server.url, *SIMULATED), log=tmp_path / "old.log", **old.variables
    ):
        with started(producer_command(*job), log=tmp_path / "job.log", **old.variables) as process:
            output = tmp_path / "out.jsonl"
            wait_until(lambda: output.exists() and output.stat().st_size, timeout_s=60, description="it has begun")
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 130
        refused = new.run("resume", "j", *where)
        assert (refused.returncode, f"version {WIRE_VERSION}" in refused.stderr) == (2, True), refused.stderr
        assert old.run("resume", "j", *where).returncode == 0
    check_whole(tmp_path / "out.jsonl", ROWS)
