"""An input that grows: whole lines alone are read, what was read stays, and its end comes once and for good."""

import os
from pathlib import Path
from typing import BinaryIO

import pytest

from common.errors import RefusedError, StoppedError
from common.settings import Settings
from producer.growing_input import LONGEST_STEP_S, GrowingInput
from producer.job_input import End, JobInput
from producer.job_lock import JobLock
from producer.job_spec import JobSpec


class Place:
    """One job's input in a temporary folder, followed or copied, and a stream over it."""

    def __init__(self, folder: Path, *, follow: bool) -> None:
        self.folder = folder
        source = folder / "in.jsonl" if follow else "-"
        spec = JobSpec.from_settings(
            Settings(), input=str(source), output=None, model="m", redis="given", follow=follow, job="j"
        )
        self.spec = spec.model_copy(update={"spooled": not follow, "streamed": not follow})
        self.input = JobInput(folder, self.spec)
        self.path = self.input.path
        self.path.touch()
        self.now_s = 0.0

    def grow(self, content: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(content)

    def stream(self, *, at: int = 0, until_idle_s: float = 0.0) -> GrowingInput:
        file: BinaryIO = self.path.open("rb")
        file.seek(at)
        return GrowingInput(self.input, file, until_idle_s=until_idle_s, now_s=self.now_s)

    def lines(self, stream: GrowingInput, *, after_s: float = 0.5) -> list[bytes]:
        """Look once more, and read all there is."""
        self.now_s += after_s
        stream.look(now_s=self.now_s)
        return list(iter(stream.readline, b""))


@pytest.fixture(params=[True, False], ids=["followed", "copied"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(tmp_path, follow=request.param)


@pytest.fixture
def followed(tmp_path: Path) -> Place:
    return Place(tmp_path, follow=True)


def test_whole_lines_are_read_as_they_come(place: Place) -> None:
    stream = place.stream()
    assert place.lines(stream) == []
    place.grow(b"one\ntwo\nthr")
    assert place.lines(stream) == [b"one\n", b"two\n"]
    place.grow(b"e" * 200_000)
    assert place.lines(stream) == []
    place.grow(b"e\nfour\n")
    assert place.lines(stream) == [b"thr" + b"e" * 200_001 + b"\n", b"four\n"]


def test_nothing_is_read_that_was_not_looked_for(place: Place) -> None:
    place.grow(b"one\n")
    stream = place.stream()
    assert place.lines(stream) == [b"one\n"]
    place.grow(b"two\n")
    assert stream.readline() == b""
    assert place.lines(stream) == [b"two\n"]


def test_a_long_line_comes_in_pieces(place: Place) -> None:
    place.grow(b"long line\nnext\n")
    stream = place.stream()
    stream.look(now_s=1.0)
    assert [stream.readline(6), stream.readline(6), stream.readline(6)] == [b"long l", b"ine\n", b"next\n"]


def test_a_torn_line_is_one_once_the_end_is_known(place: Place) -> None:
    place.grow(b"one\ntorn")
    stream = place.stream()
    assert place.lines(stream) == [b"one\n"]
    place.input.mark_end(End(8))
    assert place.lines(stream) == [b"torn"]
    assert stream.ended


def test_what_comes_behind_the_end_is_not_read(place: Place) -> None:
    place.grow(b"one\n")
    stream = place.stream()
    stream.end_here()
    place.grow(b"two\n")
    assert place.lines(stream) == [b"one\n"]
    assert place.input.mark_end(End(8)) == End(4), "the first mark counts"
    assert place.lines(place.stream(at=4)) == []


def test_what_is_lost_before_the_end_is_not_passed_over(place: Place) -> None:
    place.grow(b"one\ntwo\n")
    place.input.mark_end(End(8))
    stream = place.stream()
    stream.look(now_s=1.0)
    assert stream.readline() == b"one\n"
    os.truncate(place.path, 6)
    for late in (stream, place.stream()):
        with pytest.raises(RefusedError, match="6 are there now"):
            late.look(now_s=2.0)


def test_reading_goes_on_where_it_was(place: Place) -> None:
    place.grow(b"one\ntwo\n")
    assert place.lines(place.stream(at=4)) == [b"two\n"]
    with pytest.raises(RefusedError, match="--fresh"):
        place.stream(at=9)


def test_a_followed_file_is_idle_only_while_it_does_not_grow(followed: Place) -> None:
    followed.grow(b"one\n")
    stream = followed.stream(until_idle_s=3.0)
    assert followed.lines(stream) == [b"one\n"]
    followed.lines(stream, after_s=2.0)
    followed.grow(b"tor")
    for _ in range(2):
        assert followed.lines(stream, after_s=1.5) == []
    assert not stream.ended
    assert followed.lines(stream, after_s=1.5) == [b"tor"], "three seconds without growth"
    assert stream.ended
    assert followed.input.end() == End(7)


def test_time_in_which_nobody_looked_is_not_idle(followed: Place) -> None:
    stream = followed.stream(until_idle_s=2 * LONGEST_STEP_S)
    followed.lines(stream)
    followed.lines(stream, after_s=1000)
    assert not stream.ended


def test_a_followed_file_that_is_cut_or_moved_stops_the_job(followed: Place) -> None:
    followed.grow(b"one\ntwo\n")
    stream = followed.stream()
    followed.lines(stream)
    os.truncate(followed.path, 4)
    with pytest.raises(StoppedError, match="was cut"):
        followed.lines(stream)
    stream = followed.stream()
    followed.path.rename(followed.folder / "rotated")
    for _ in range(2):
        with pytest.raises(StoppedError, match="moved or replaced"):
            followed.lines(stream)
        followed.path.write_bytes(b"one\n")


def test_a_change_of_what_was_read_is_seen(followed: Place) -> None:
    followed.grow(b"one\ntwo\nthree\n")
    with followed.path.open("rb") as file:
        followed.input.note_read(file.fileno(), size=8)
    again = JobInput(followed.folder, followed.spec)
    for content in (b"one\ntwo\n", b"one\ntwo\nothers\n"):
        followed.path.write_bytes(content)
        again.check_unchanged()
    for content in (b"one\ntwo", b"one\ntwe\nthree\n", b""):
        followed.path.write_bytes(content)
        with pytest.raises(RefusedError, match="--fresh"):
            again.check_unchanged()


def test_an_input_cut_short_is_done_without_once_nobody_copies_it(tmp_path: Path) -> None:
    place = Place(tmp_path, follow=False)
    place.grow(b"one\ntwo\ntor")
    with JobLock(place.input.lock_path):
        assert place.input.end_early() is None
        assert "waiting for lines in standard input" in place.stream().waits_for()
    assert "producer resume j" in place.stream().waits_for()
    assert place.input.end_early() == End(11, 3)
    assert place.input.end_early() == End(11, 3), "it is said each time"
    assert place.lines(place.stream()) == [b"one\n", b"two\n", b"tor"]
