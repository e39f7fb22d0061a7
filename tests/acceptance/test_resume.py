"""Stopped at any moment and started again by the same command: what was done stays, the rest is done, or it is refused.

What is refused has changed: the input, the model, the parameters, the ordered file, or the journal itself.
"""

import os
import random
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from producer.journal import Journal
from tests.collecting import Bench, FakeEngineWorker, write_input
from tests.faults.tearing import cut, tear
from tests.jobs import await_durable, check_whole, durable_results, only_job, wait_for_results, write_requests
from tests.processes import (
    await_gone,
    descendants,
    producer_command,
    read_results,
    run_producer,
    started,
    started_worker,
)
from tests.run_family import MEMBERS, await_family
from tests.servers import VALKEY, Server

ROWS = 100
SEEDS = range(int(os.environ.get("RESUME_SEEDS", "2")))
KILLS, KILLED_ROWS = 2, 72
SLOW = ("--engine", "sim", "--sim-seconds", "0.1", "--sim-places", "8", "--batch-size", "4")


@pytest.mark.kill
@pytest.mark.parametrize("seed", SEEDS)
def test_killed_at_random_again_and_again(tmp_path: Path, seed: int) -> None:
    """One process after the other, each at a random moment; the same command each time, and at last it is done."""
    chance = random.Random(seed)
    source, output, jobs = write_requests(tmp_path / "in.jsonl", KILLED_ROWS), tmp_path / "out.jsonl", tmp_path / "jobs"
    arguments, log = ("run", source, "-o", output, "--jobs", jobs, *SLOW), tmp_path / "run.log"
    moments = sorted(chance.sample(range(KILLED_ROWS - 24), KILLS))
    durable = b""
    for victim, moment in zip(chance.sample(MEMBERS, KILLS), moments, strict=True):
        with started(producer_command(*arguments), log=log) as run:
            kill_at(run, victim, moment, jobs)
            written = output.read_bytes() if output.exists() else b""
            assert written.startswith(durable), "a line that could be read has changed"
            durable = written.rpartition(b"\n")[0]
    ended = run_producer(*arguments)
    assert ended.returncode == 0, ended.stderr
    check_whole(output, KILLED_ROWS)
    assert output.read_bytes().startswith(durable), "a line that could be read has changed"
    assert only_job(jobs)


def kill_at(run: "subprocess.Popen[bytes]", victim: str, moment: int, jobs: Path) -> None:
    """Kill one process of `run` once the journal has so many results; it ends of it, or goes on with another worker."""
    family = await_family(run)
    below = descendants(run.pid)
    await_durable(jobs, moment)
    assert durable_results(jobs) < KILLED_ROWS, "nothing was left to do"
    os.kill(family[victim], signal.SIGKILL)
    if victim == "worker":
        await_gone([process for process in below if process.pid == family[victim]])
        run.kill()
    assert run.wait(60) == (3 if victim in ("supervisor", "server") else -signal.SIGKILL)
    await_gone(below, timeout_s=20)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with one quick worker that serves any name."""
    folder = tmp_path_factory.mktemp("node")
    server = Server(VALKEY, folder / "data").start()
    with started_worker(server, "--engine", "sim", "--sim-seconds", "0.01", log=folder / "worker.log"):
        yield server
    server.stop()


class Stopped:
    """A job on the fleet that was interrupted when a third of it was done, and its command."""

    def __init__(self, folder: Path, server: Server) -> None:
        self.folder, self.jobs = folder, folder / "jobs"
        self.source, self.output = write_requests(folder / "in.jsonl", ROWS), folder / "out.jsonl"
        self.model = "m"
        places = ("-o", self.output, "--jobs", self.jobs, "--redis-url", server.url)
        self.arguments = ["run", self.source, *places, "--model", "m", "--max-concurrency", "4"]
        log = folder / "first.log"
        with started(producer_command(*self.arguments), log=log) as run:
            wait_for_results(self.output, run, at_least=ROWS // 3, log=log)
            run.send_signal(signal.SIGINT)
            assert run.wait(20) == 130, log.read_text()
        self.before = self.output.read_bytes()
        assert self.before.count(b"\n") < ROWS

    def again(self, *more: object) -> "subprocess.CompletedProcess[str]":
        """The same command, with more arguments, the last of each name counting."""
        return run_producer(*self.arguments, *more)

    def check_refused(self, ended: "subprocess.CompletedProcess[str]", *words: str) -> None:
        """It was refused in these words, and nothing was touched."""
        assert ended.returncode == 2, ended.stderr
        said = " ".join(ended.stderr.split())
        for word in words:
            assert word in said
        assert "Traceback" not in said

    def check_completes(self) -> None:
        """The command as it was still goes on, from where it was."""
        ended = self.again()
        assert ended.returncode == 0, ended.stderr
        check_whole(self.output, ROWS)
        assert self.output.read_bytes().startswith(self.before)


@pytest.fixture
def stopped(tmp_path: Path, server: Server) -> Stopped:
    return Stopped(tmp_path, server)


def test_another_input_model_or_parameters_are_refused(stopped: Stopped) -> None:
    content = stopped.source.read_bytes()
    stopped.source.write_bytes(content.replace(b"say 7", b"say 8"))
    stopped.check_refused(stopped.again(), "the input has changed", "--fresh")
    stopped.source.write_bytes(content)
    for changed, field in (
        (("--model", "other"), "model"),
        (("--max-retries", "0"), "max_retries"),
        (("--request-timeout", "5"), "request_timeout_s"),
        (("--include-request",), "include_request"),
    ):
        stopped.check_refused(stopped.again(*changed), "is not finished", field, "--fresh")
    job = only_job(stopped.jobs)
    assert stopped.output.read_bytes() == stopped.before
    stopped.check_completes()
    assert only_job(stopped.jobs) == job


def test_an_ordered_file_that_was_cut_or_removed_is_refused_with_both_lengths(stopped: Stopped) -> None:
    for damage in ("cut", "removed"):
        size = len(stopped.before)
        if damage == "cut":
            cut(stopped.output, to_bytes=100)
        else:
            stopped.output.unlink()
        stopped.check_refused(stopped.again(), "has 100 bytes" if damage == "cut" else "is gone", str(size), "--fresh")
        assert stopped.output.exists() is (damage == "cut")
        stopped.output.write_bytes(stopped.before)
    stopped.check_completes()
    whole = stopped.output.read_bytes()
    cut(stopped.output, to_bytes=200)
    stopped.check_refused(stopped.again(), "has 200 bytes", str(len(whole)), "--fresh")
    stopped.output.unlink()
    stopped.check_refused(stopped.again(), "is gone", str(len(whole)), "--fresh")


@pytest.mark.parametrize("redis_knows", [True, False])
def test_an_old_copy_of_the_journal_is_refused(stopped: Stopped, server: Server, redis_knows: bool) -> None:
    job = only_job(stopped.jobs)
    shutil.copytree(stopped.jobs / job, stopped.folder / "copy")
    stopped.check_completes()
    whole = stopped.output.read_bytes()
    shutil.rmtree(stopped.jobs / job)
    shutil.copytree(stopped.folder / "copy", stopped.jobs / job)
    if not redis_knows:
        for key in server.client().scan_iter(f"bakehouse:*{job}*"):
            server.client().delete(key)
    stopped.check_refused(stopped.again(), "old copy")
    assert stopped.output.read_bytes() == whole


def test_an_old_copy_without_its_file_is_known_by_redis(stopped: Stopped) -> None:
    """The ordered file was copied with the journal, so that both agree: only Redis knows better."""
    job = only_job(stopped.jobs)
    shutil.copytree(stopped.jobs / job, stopped.folder / "copy")
    stopped.check_completes()
    shutil.rmtree(stopped.jobs / job)
    shutil.copytree(stopped.folder / "copy", stopped.jobs / job)
    stopped.output.write_bytes(stopped.before)
    stopped.check_refused(stopped.again(), "Redis knows a newer journal", "old copy")
    assert stopped.output.read_bytes() == stopped.before


def test_a_lost_job_directory_is_said(stopped: Stopped, server: Server) -> None:
    job = only_job(stopped.jobs)
    shutil.rmtree(stopped.jobs / job)
    where = ("--jobs", stopped.jobs)
    for verb in ("resume", "collect"):
        stopped.check_refused(run_producer(verb, job, *where, "--redis-url", server.url), job, str(stopped.jobs))
    stopped.check_refused(run_producer("get", job, "r-1", *where), job, str(stopped.jobs))
    stopped.check_refused(stopped.again(), "the output is not empty", "--overwrite")
    assert stopped.output.read_bytes() == stopped.before
    ended = stopped.again("--overwrite")
    assert ended.returncode == 0, ended.stderr
    check_whole(stopped.output, ROWS)


@pytest.mark.parametrize("seed", SEEDS)
def test_torn_last_lines_are_mended(tmp_path: Path, seed: int) -> None:
    """Killed between writing and syncing: of what was not synced any part may be there, of errors.jsonl none."""
    chance = random.Random(seed)
    server = Server(VALKEY, tmp_path / "data").start()
    lines = write_input(tmp_path / "all.jsonl", 60).read_text().splitlines()
    source = tmp_path / "in.jsonl"
    source.write_text("\n".join(line if number % 5 else "{" for number, line in enumerate(lines)))
    bench = Bench(tmp_path, server, source)
    with FakeEngineWorker(server, share=3):
        bench.crash("producer.output:Output.sync", 3)
        output, errors = bench.directory.output_path, bench.directory.errors_path
        written = output.read_bytes()
        with Journal.open(bench.directory.journal_path) as journal:
            synced, _ = journal.synced_lengths()
        assert synced < len(written), "nothing was unsynced"
        first, last = written[:synced].count(b"\n"), written.count(b"\n") - 1
        kept = tear(output, keep_lines=chance.randint(first, last), more_bytes=41, zeros=chance.choice((0, 300)))
        tear(errors, keep_lines=0, more_bytes=17)
        assert bench.run().exit_code == 1
    assert written.startswith(kept)
    assert output.read_bytes().startswith(written), "what the journal had is written again, byte for byte"
    results = read_results(output)
    assert [result["line"] for result in results] == list(range(1, 61))
    assert read_results(errors) == [result for result in results if result["error"]]
    server.stop()
