"""Input that grows, in another order of work: what is there goes when it has lingered, and every line once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.growing import Growing, line_of, lines_of
from tests.jobs import check_whole
from tests.processes import started_worker
from tests.servers import VALKEY, Server


@pytest.fixture
def growing(tmp_path: Path) -> Iterator[Growing]:
    server = Server(VALKEY, tmp_path / "data").start()
    engine = ("--engine", "sim", "--sim-profile", "zero")
    with started_worker(server, *engine, log=tmp_path / "worker.log"):
        yield Growing(tmp_path, server)
    server.stop()


def test_lines_of_a_pipe_are_not_held_back_for_a_whole_block(growing: Growing) -> None:
    with growing.piped("run", "--order", "length") as (run, pipe):
        for number in range(2):
            pipe.write(line_of(number))
            pipe.flush()
            growing.await_results(run, number + 1)
        pipe.write(lines_of(range(2, 50)))
        pipe.close()
        growing.await_end(run, 0)
    check_whole(growing.output, 50)


def test_killed_while_a_pipe_is_written(growing: Growing) -> None:
    with growing.piped("run", "--order", "prefix") as (run, pipe):
        pipe.write(lines_of(range(30)))
        pipe.flush()
        growing.await_results(run, 1)
        run.kill()
        run.wait()
    again = growing.again("--order", "prefix", content=lines_of(range(60)))
    assert again.returncode == 0, again.stderr
    check_whole(growing.output, 60)
