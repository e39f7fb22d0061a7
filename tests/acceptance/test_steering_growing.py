"""Input that grows while its job runs, by real processes: a pipe written slowly, a followed file, each cut short."""

import json
import os
import pty
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from producer.job_directory import JobDirectory
from tests.growing import Growing, line_of, lines_of
from tests.jobs import check_whole, only_job
from tests.processes import environment, producer_command, read_results, run_producer, started, started_worker
from tests.servers import VALKEY, Server
from tests.waiting import wait_until

SIMULATED = ("--engine", "sim", "--sim-profile", "zero")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with one quick worker that serves any name."""
    folder = tmp_path_factory.mktemp("node")
    server = Server(VALKEY, folder / "data").start()
    with started_worker(server, *SIMULATED, log=folder / "worker.log"):
        yield server
    server.stop()


@pytest.fixture
def growing(tmp_path: Path, server: Server) -> Growing:
    return Growing(tmp_path, server)


def test_results_come_while_a_pipe_is_still_written(growing: Growing) -> None:
    with growing.piped() as (run, pipe):
        for number in range(3):
            pipe.write(line_of(number))
            pipe.flush()
            growing.await_results(run, number + 1)
        counts = json.loads(run_producer("status", only_job(growing.jobs), "--json", *growing.place).stdout)["jobs"][0]
        assert counts["total"] is None, "the end is not known yet"
        pipe.write(line_of(3)[:-1])
        pipe.close()
        growing.await_end(run, 0)
    check_whole(growing.output, 4)


def test_a_torn_line_waits_for_its_end(growing: Growing) -> None:
    with growing.piped() as (run, pipe):
        pipe.write(line_of(0) + line_of(1)[:20])
        pipe.flush()
        growing.await_results(run, 1)
        pipe.write(line_of(1)[20:])
        pipe.flush()
        growing.await_results(run, 2)
        pipe.close()
        growing.await_end(run, 0)
    check_whole(growing.output, 2)


def test_killed_while_a_pipe_is_written_and_given_it_again(growing: Growing) -> None:
    with growing.piped() as (run, pipe):
        pipe.write(lines_of(range(5)))
        pipe.flush()
        growing.await_results(run, 5)
        run.kill()
        run.wait()
    before = growing.output.read_bytes()
    differing = growing.again(content=line_of(7) + lines_of(range(1, 9)))
    assert differing.returncode == 2, differing.stderr
    assert "--fresh" in differing.stderr
    shorter = growing.again(content=lines_of(range(4)))
    assert shorter.returncode == 2, shorter.stderr
    ended = growing.again(content=lines_of(range(9)))
    assert ended.returncode == 0, ended.stderr
    assert growing.output.read_bytes().startswith(before), "a line that could be read has changed"
    check_whole(growing.output, 9)
    assert only_job(growing.jobs)


def test_resume_does_without_what_never_came(growing: Growing) -> None:
    with growing.piped() as (run, pipe):
        pipe.write(lines_of(range(5)) + line_of(5)[:20])
        pipe.flush()
        growing.await_results(run, 5)
        run.send_signal(signal.SIGINT)
        said = growing.await_end(run, 130)
        assert "standard input was not read to its end" in said
        assert said.endswith(f"continue: producer resume {only_job(growing.jobs)}")
    ended = run_producer("resume", only_job(growing.jobs), *growing.place)
    assert ended.returncode == 1, ended.stderr
    said = " ".join(ended.stderr.split())
    assert "ended early: the lines that came by standard input, 6 in all, are run; the rest never came" in said
    results = read_results(growing.output)
    assert [result["custom_id"] for result in results[:5]] == [f"r-{number}" for number in range(5)]
    assert results[5]["error"]["code"] == "invalid_json"
    again = growing.again(content=lines_of(range(9)))
    assert again.returncode == 2, "the rest was done without"
    assert "--fresh" in again.stderr


def test_a_followed_file_ends_when_it_is_idle(growing: Growing) -> None:
    growing.append(range(3))
    with growing.following("run", "--until-idle", "3s") as run:
        growing.await_results(run, 3)
        growing.append(range(3, 8))
        growing.await_results(run, 8)
        growing.await_end(run, 0)
    check_whole(growing.output, 8)
    growing.append(range(8, 9))
    again = growing.again("--until-idle", "3s")
    assert again.returncode == 0, again.stderr
    assert "was finished before" in again.stderr


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGKILL])
def test_a_followed_file_goes_on_after_its_command_was_stopped(growing: Growing, signum: signal.Signals) -> None:
    growing.append(range(3))
    with growing.following() as run:
        growing.await_results(run, 3)
        wait_until(
            lambda: f"waiting for lines in {growing.source}" in " ".join(growing.log.read_text().split()),
            timeout_s=60,
            description="it says what it waits for",
        )
        run.send_signal(signum)
        growing.await_end(run, 130 if signum == signal.SIGINT else -signum)
    content = growing.source.read_bytes()
    for changed in (content[:-1], content.replace(b"say 1", b"say 2")):
        growing.source.write_bytes(changed)
        refused = growing.again("--until-idle", "1s")
        assert refused.returncode == 2, refused.stderr
        assert "--fresh" in refused.stderr
    growing.source.write_bytes(content)
    growing.append(range(3, 6))
    ended = growing.again("--until-idle", "1s")
    assert ended.returncode == 0, ended.stderr
    check_whole(growing.output, 6)


def test_a_followed_file_that_is_replaced_stops_the_job(growing: Growing) -> None:
    growing.append(range(3))
    with growing.following() as run:
        growing.await_results(run, 3)
        growing.source.rename(growing.folder / "in.jsonl.1")
        growing.append(range(3, 5))
        said = growing.await_end(run, 3)
    assert "was moved or replaced" in said
    assert growing.again().returncode == 2
    os.replace(growing.folder / "in.jsonl.1", growing.source)
    assert growing.again("--until-idle", "1s").returncode == 0
    check_whole(growing.output, 3)


def test_enqueue_feeds_a_pipe_to_its_end(growing: Growing) -> None:
    """A collector of another process takes up what it left."""
    with growing.piped("enqueue") as (run, pipe):
        pipe.write(lines_of(range(5)))
        pipe.flush()
        wait_until(lambda: fed(growing) >= 5, timeout_s=60, description="what came is fed")
        assert run.poll() is None, "its input has not ended"
        pipe.write(lines_of(range(5, 9)))
        pipe.close()
        growing.await_end(run, 0)
    ended = run_producer("collect", only_job(growing.jobs), *growing.place)
    assert ended.returncode == 0, ended.stderr
    check_whole(growing.output, 9)


def test_enqueue_of_a_followed_file_leaves_the_rest_to_the_collector(growing: Growing) -> None:
    growing.append(range(3))
    with growing.following("enqueue") as run:
        said = growing.await_end(run, 0)
    assert "will be fed by a collector" in said
    growing.append(range(3, 6))
    job = only_job(growing.jobs)
    with started(producer_command("collect", job, *growing.place), log=growing.folder / "collect.log") as collector:
        growing.await_results(collector, 6)
        growing.append(range(6, 7))
        growing.await_results(collector, 7)
    check_whole(growing.output, 7)


def test_a_cancel_ends_a_pipe_and_a_followed_file(growing: Growing) -> None:
    """Nobody writes any more, and nobody closes the pipe: what is there is all of it."""
    with growing.piped() as (run, pipe):
        pipe.write(lines_of(range(3)) + b"torn")
        pipe.flush()
        growing.await_results(run, 3)
        said = run_producer("cancel", only_job(growing.jobs), *growing.place)
        assert said.returncode in (0, 1), said.stderr
        growing.await_end(run, 1)
    results = read_results(growing.output)
    assert [result["line"] for result in results] == [1, 2, 3, 4]
    assert results[3]["error"]["code"] == "invalid_json"
    growing.output = growing.folder / "followed.jsonl"
    growing.append(range(2))
    with growing.following() as run:
        growing.await_results(run, 2)
        (job,) = (each.spec.job for each in JobDirectory.list_all(growing.jobs) if each.spec.follow)
        run_producer("cancel", job, *growing.place)
        growing.await_end(run, 1)
    check_whole(growing.output, 2)


def test_a_terminal_is_read_until_ctrl_d(growing: Growing) -> None:
    keyboard, terminal = pty.openpty()
    with growing.log.open("ab") as log:
        command = producer_command(*growing.arguments("run", "-"))
        run = subprocess.Popen(command, env=environment(), stdin=terminal, stdout=log, stderr=log)
    try:
        wait_until(lambda: "until Ctrl-D" in growing.log.read_text(), timeout_s=60, description="it says what it reads")
        os.write(keyboard, line_of(0))
        growing.await_results(run, 1)
        os.write(keyboard, b"\x04")
        growing.await_end(run, 0)
    finally:
        run.kill()
        os.close(keyboard)
        os.close(terminal)
    check_whole(growing.output, 1)


def fed(growing: Growing) -> int:
    """Lines that the job has fed so far."""
    if not JobDirectory.list_all(growing.jobs):
        return 0
    job = json.loads(run_producer("status", only_job(growing.jobs), "--json", *growing.place).stdout)["jobs"][0]
    return int(job["fed"] or 0)
