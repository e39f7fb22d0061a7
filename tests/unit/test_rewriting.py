"""The ordered file written anew, over a real journal: for any rounds of any rows and lengths, each shows its newest."""

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from common.wire import Result
from producer.journal import Journal, RequestRow
from producer.journal_reader import JournalReader
from producer.output import Output
from producer.rewriting import kept_path
from producer.selection import Selection

ALL = Selection(statuses=("2xx", "5xx"))


@st.composite
def histories(draw: st.DrawFn) -> list[dict[int, tuple[int, int]]]:
    """For each round, the first of all rows: seq -> (length of its text, status)."""
    total = draw(st.integers(1, 12))
    outcome = st.tuples(st.integers(0, 40), st.sampled_from((200, 503)))
    first = {seq: draw(outcome) for seq in range(total)}
    later = draw(st.lists(st.dictionaries(st.integers(0, total - 1), outcome), max_size=3))
    return [first, *later]


def result(seq: int, round_: int, length: int, status: int) -> Result:
    good = status == 200
    usage = f'{{"usage":{{"prompt_tokens":{length},"completion_tokens":{round_}}}}}' if good else "{}"
    line = f'{{"id":"j-{seq}","round":{round_},"text":"{"é" * length}","response":{{"body":{usage}}}}}'
    code, tokens = ("", (length, round_)) if good else ("overloaded", (0, 0))
    return Result(seq, round_, status, code, 1, *tokens, line.encode())


def settle(journal: Journal, output: Output, results: list[Result]) -> None:
    with journal.writing():
        _, stretch = journal.settle(results)
    if stretch is not None:
        output.write(stretch)
        output.sync(frontier=stretch.frontier)


@settings(max_examples=20, deadline=None)
@given(history=histories())
def test_each_row_shows_its_newest_round(history: list[dict[int, tuple[int, int]]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder, total = Path(name), len(history[0])
        results, errors = folder / "out.jsonl", folder / "errors.jsonl"
        shown: dict[int, Result] = {}
        files: list[bytes] = []
        for round_, rows in enumerate(history):
            journal = Journal.open(folder / "journal.sqlite")
            if round_ == 0:
                with journal.writing():
                    journal.add_requests([RequestRow(seq, seq + 1, 9 * seq, 9, None) for seq in range(total)])
                    journal.counts.total = total
            else:
                with journal.writing():
                    journal.begin_round(ALL)
            output = Output(results, errors).open(journal)
            made = [result(seq, round_, *outcome) for seq, outcome in rows.items()]
            settle(journal, output, made)
            with journal.writing():  # what the round has not finished keeps its older result
                journal.give_up_round(() if round_ == 0 else journal_rest(journal, rows))
            output.renew(journal)
            with journal.writing():
                journal.finish(exit_code=0)
            output.close()
            journal.close()
            shown |= {each.seq: each for each in made}
            files.append(results.read_bytes())
            check(folder, shown)
        for round_, before in enumerate(files[:-1], 1):
            assert kept_path(results, round_).read_bytes() == before


def journal_rest(journal: Journal, rows: dict[int, tuple[int, int]]) -> list[int]:
    """Feed all that was selected; returns what has no result of this round."""
    chosen = [row.seq for row in journal.again_after(-1)]
    journal.take_again(chosen)
    return [seq for seq in chosen if seq not in rows]


def check(folder: Path, shown: dict[int, Result]) -> None:
    lines = [shown[seq].line for seq in sorted(shown)]
    failed = [shown[seq] for seq in sorted(shown) if shown[seq].status != 200]
    assert (folder / "out.jsonl").read_bytes() == b"".join(line + b"\n" for line in lines)
    assert (folder / "errors.jsonl").read_bytes() == b"".join(each.line + b"\n" for each in failed)
    with JournalReader.open(folder / "journal.sqlite") as journal:
        checkpoint = journal.checkpoint()
        counts = checkpoint.counts
        assert (counts.done, counts.fed, counts.failed) == (len(shown), len(shown), len(failed))
        assert counts.prompt_tokens == sum(each.prompt_tokens for each in shown.values())
        assert counts.completion_tokens == sum(each.completion_tokens for each in shown.values())
        assert checkpoint.out_bytes == (folder / "out.jsonl").stat().st_size
        assert checkpoint.error_bytes == (folder / "errors.jsonl").stat().st_size
        for seq, line in enumerate(lines):
            assert journal.result_line(seq, output=folder / "out.jsonl") == line
