"""The spooler on real pipes: what comes is copied as it comes, again from its beginning, unpacked, until its end."""

import gzip
import os
import threading
from pathlib import Path
from typing import BinaryIO

import pytest

from common.errors import RefusedError, StoppedError
from common.settings import Settings
from producer.growing_input import GrowingInput
from producer.input_file import create_private
from producer.job_input import JobInput
from producer.job_spec import JobSpec
from producer.spooler import Spooler
from tests.waiting import wait_until

CONTENT = b'{"custom_id":"a","prompt":"hi"}\n' * 9


class Pipe:
    """A named pipe, and the copy of what comes by it."""

    def __init__(self, folder: Path) -> None:
        self.name = folder / "pipe"
        os.mkfifo(self.name)
        spec = JobSpec.from_settings(Settings(), input=str(self.name), output=None, model="m", redis="given", job="j")
        self.input = JobInput(folder, spec.model_copy(update={"spooled": True, "streamed": True}))
        create_private(self.input.path).close()

    def open(self) -> BinaryIO:
        """Its other end; where the spooler is to see that it is closed, it must be open already."""
        return open(os.open(self.name, os.O_RDWR), "wb", buffering=0)

    def is_deserted(self) -> bool:
        """Whether nobody reads it any more."""
        try:
            os.close(os.open(self.name, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:
            return True
        return False

    def copied(self) -> bytes:
        return self.input.path.read_bytes()

    def await_copied(self, content: bytes) -> None:
        wait_until(lambda: self.copied() == content, timeout_s=10, description="it is copied")

    def copy(self, content: bytes, *, until_idle_s: float = 0.0) -> None:
        """Let all of `content` come, and wait for its end; raises what stopped it."""
        with Spooler(self.input, until_idle_s=until_idle_s) as spooler:
            writer = threading.Thread(target=self._write, args=(content,), daemon=True)
            writer.start()
            spooler.wait()

    def _write(self, content: bytes) -> None:
        try:
            with self.name.open("wb", buffering=0) as end:
                end.write(content)
        except BrokenPipeError:
            return


@pytest.fixture
def pipe(tmp_path: Path) -> Pipe:
    return Pipe(tmp_path)


@pytest.mark.parametrize("packed", [False, True])
def test_it_is_copied_as_it_comes(pipe: Pipe, packed: bool) -> None:
    parts = [CONTENT[:40], CONTENT[40:]]
    sent = list(map(gzip.compress, parts)) if packed else parts
    with Spooler(pipe.input, until_idle_s=0) as spooler, pipe.name.open("wb", buffering=0) as end:
        end.write(sent[0])
        pipe.await_copied(parts[0])
        assert pipe.input.end() is None
        assert pipe.input.copier() is not None
        end.write(sent[1])
        end.close()
        spooler.wait()
    assert pipe.copied() == CONTENT
    found = pipe.input.end()
    assert found is not None
    assert found.size == len(CONTENT)
    assert pipe.input.copier() is None


@pytest.mark.parametrize("came", [b"", CONTENT[:40], CONTENT])
def test_what_was_stopped_goes_on_with_the_same_input(pipe: Pipe, came: bytes) -> None:
    with pipe.open() as end, Spooler(pipe.input, until_idle_s=0):
        end.write(came)
        pipe.await_copied(came)
    assert pipe.input.end() is None, "it was stopped"
    for other in (b"x" + CONTENT, CONTENT[: len(came) - 1]) if came else ():
        with pytest.raises(RefusedError, match="--fresh"):
            pipe.copy(other)
        assert pipe.copied() == came
        assert pipe.input.end() is None
    pipe.copy(CONTENT)
    assert pipe.copied() == CONTENT
    assert pipe.input.end() is not None


def test_it_is_known_when_what_came_before_has_come_again(pipe: Pipe) -> None:
    pipe.input.path.write_bytes(CONTENT[:40])
    with Spooler(pipe.input, until_idle_s=0) as spooler, pipe.name.open("wb", buffering=0) as end:
        waiter = threading.Thread(target=spooler.await_compared)
        waiter.start()
        end.write(CONTENT[:20])
        waiter.join(0.5)
        assert waiter.is_alive(), "the half of it has not come"
        end.write(CONTENT[20:])
        waiter.join(10)
        assert not waiter.is_alive()


def test_an_idle_pipe_ends(pipe: Pipe) -> None:
    with Spooler(pipe.input, until_idle_s=0.5) as spooler, pipe.name.open("wb", buffering=0) as end:
        end.write(CONTENT)
        spooler.wait()
        assert pipe.input.end() is not None
    assert pipe.copied() == CONTENT


def test_damaged_packing_stops_it_and_keeps_what_came(pipe: Pipe) -> None:
    with pytest.raises(StoppedError, match="damaged"):
        pipe.copy(gzip.compress(CONTENT)[:-4])
    assert pipe.input.end() is None


def test_two_at_once_are_refused(pipe: Pipe) -> None:
    with pipe.open(), Spooler(pipe.input, until_idle_s=0), pytest.raises(RefusedError, match=str(os.getpid())):
        Spooler(pipe.input, until_idle_s=0).__enter__()


def test_an_end_that_comes_with_an_interrupt_is_not_believed(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C ends who writes into the pipe, too."""
    monkeypatch.setattr("producer.spooler.INTERRUPT_S", 30.0)
    with Spooler(pipe.input, until_idle_s=0) as spooler, pipe.name.open("wb", buffering=0) as end:
        end.write(CONTENT)
        pipe.await_copied(CONTENT)
        end.close()
        wait_until(pipe.is_deserted, timeout_s=10, description="it has seen the end")
        spooler.interrupt()
        spooler.wait()
    assert pipe.input.end() is None


def test_a_collector_in_this_process_hears_what_stopped_it(pipe: Pipe) -> None:
    pipe.input.path.write_bytes(b"one\ntwo\n")
    stream = GrowingInput(pipe.input, pipe.input.open(), until_idle_s=0, now_s=0)
    with pytest.raises(RefusedError):
        pipe.copy(CONTENT)
    with pytest.raises(RefusedError, match="--fresh"):
        stream.look(now_s=1)
