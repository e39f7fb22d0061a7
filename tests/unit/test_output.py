"""The ordered file over a real journal: sorted, unique, and equal to the journal whatever a crash kept from it."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.errors import RefusedError
from common.wire import Result
from producer.journal import Journal, RequestRow
from producer.output import Output


def result(seq: int, *, text: str = "first", status: int = 200) -> Result:
    line = f'{{"seq":{seq},"text":"{text}"}}'.encode()
    return Result(seq, 0, status, "" if status == 200 else "timeout", 1, 0, 0, line)


class Job:
    """A journal and its output in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.journal = Journal.open(folder / "journal.sqlite")
        self.output = Output(folder / "out.jsonl", folder / "errors.jsonl").open(self.journal)

    def feed(self, total: int) -> None:
        with self.journal.writing():
            self.journal.add_requests([RequestRow(seq, seq + 1, 10 * seq, 10, None) for seq in range(total)])

    def settle(self, results: list[Result], *, write: bool = True) -> None:
        with self.journal.writing():
            self.journal.forget_pending(below=self.output.synced_frontier)
            _, stretch = self.journal.settle(results)
        if stretch and write:
            self.output.write(stretch)
            self.output.sync(frontier=stretch.frontier)

    def again(self) -> "Job":
        self.close()
        return Job(self.folder)

    def close(self) -> None:
        self.output.close()
        self.journal.close()

    def lines(self) -> list[bytes]:
        raw = (self.folder / "out.jsonl").read_bytes()
        assert raw == b"" or raw.endswith(b"\n")
        return raw.split(b"\n")[:-1]


@st.composite
def arrivals(draw: st.DrawFn) -> list[list[int]]:
    """Every seq at least once, in any order, with repeats, cut into commits."""
    total = draw(st.integers(1, 40))
    extra = draw(st.lists(st.integers(0, total - 1), max_size=20))
    order = draw(st.permutations(list(range(total)) + extra))
    cuts = sorted(draw(st.lists(st.integers(0, len(order)), max_size=6)))
    return [order[a:b] for a, b in zip([0, *cuts], [*cuts, len(order)], strict=True)]


@settings(max_examples=20, deadline=None)
@given(commits=arrivals(), unwritten=st.sets(st.integers(0, 6)), restart_after=st.sets(st.integers(0, 6)))
def test_any_arrival_order_gives_sorted_unique_output(
    commits: list[list[int]], unwritten: set[int], restart_after: set[int]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        job = Job(Path(folder))
        total = 1 + max(seq for commit in commits for seq in commit)
        job.feed(total)
        first: dict[int, bytes] = {}
        for number, commit in enumerate(commits):
            results = [result(seq, text=f"{number}.{i}") for i, seq in enumerate(commit)]
            for arrived in results:
                first.setdefault(arrived.seq, arrived.line)
            crashes = number in unwritten
            job.settle(results, write=not crashes)
            if crashes or number in restart_after:
                job = job.again()
        assert job.lines() == [first[seq] for seq in range(total)]
        assert job.journal.counts.done == total
        assert job.journal.counts.duplicates == sum(map(len, commits)) - total
        job.close()


def test_a_crash_between_commit_and_write_is_made_good(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.feed(4)
    job.settle([result(0)])
    job.settle([result(1, status=504), result(2)], write=False)
    assert len(job.lines()) == 1
    job = job.again()
    assert [b'"seq":%d,' % seq in line for seq, line in enumerate(job.lines())] == [True, True, True]
    assert (tmp_path / "errors.jsonl").read_bytes() == result(1).line + b"\n"
    job.close()


def test_a_torn_tail_is_cut_off(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.feed(2)
    job.settle([result(0)])
    with (tmp_path / "out.jsonl").open("ab") as file:
        file.write(b'{"torn')
    job = job.again()
    assert job.lines() == [result(0).line]
    job.settle([result(1)])
    assert job.lines() == [result(0).line, result(1).line]
    job.close()


@pytest.mark.parametrize("gone", [False, True])
def test_a_short_or_missing_ordered_file_is_refused_with_both_lengths(tmp_path: Path, gone: bool) -> None:
    job = Job(tmp_path)
    job.feed(2)
    job.settle([result(0), result(1)])
    job.settle([])
    whole = (tmp_path / "out.jsonl").stat().st_size
    if gone:
        (tmp_path / "out.jsonl").unlink()
    else:
        (tmp_path / "out.jsonl").write_bytes(job.lines()[0])
    with pytest.raises(RefusedError) as refused:
        job.again()
    assert str(whole) in refused.value.what
    assert ("is gone" if gone else str(len(result(0).line))) in refused.value.what


def test_a_file_of_somebody_else_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "out.jsonl").write_text("precious\n")
    with pytest.raises(RefusedError, match="did not write"):
        Job(tmp_path)
    assert (tmp_path / "out.jsonl").read_text() == "precious\n"


def test_errors_are_copied_again_from_the_ordered_file(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.feed(5)
    job.settle([result(seq, status=504 if seq % 2 else 200) for seq in range(3)])
    errors = (tmp_path / "errors.jsonl").read_bytes()
    assert errors == result(1).line + b"\n"
    (tmp_path / "errors.jsonl").unlink()
    job = job.again()
    assert (tmp_path / "errors.jsonl").read_bytes() == errors
    job.settle([result(4), result(3, status=504)])
    assert (tmp_path / "errors.jsonl").read_bytes() == errors + result(3).line + b"\n"
    job.close()


def test_a_line_that_is_in_the_file_is_kept_once(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.feed(3)
    job.settle([result(0), result(2)])
    job.settle([result(1)])
    job.settle([])
    waiting = job.journal._connection.execute("SELECT count(*) FROM pending").fetchone()[0]
    assert waiting == 0
    job.close()
