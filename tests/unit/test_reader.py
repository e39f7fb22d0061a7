"""The reader: how lines split, which become requests, and that nothing of a request is lost on the way."""

import io
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from common.errors import ErrorKind
from producer.reader import BlankLine, InputLine, RejectedLine, hash_id, read_lines
from producer.rejections import rejected_result
from tests.case_checker import read_cases
from tests.reading import Line, chat, choose, read, rejection, request


def kinds(lines: list[Line]) -> dict[int, str]:
    return {
        line.line: line.kind.value if isinstance(line, RejectedLine) else "ok"
        for line in lines
        if not isinstance(line, BlankLine)
    }


@pytest.mark.parametrize(
    ("file", "bad"),
    [
        ("A01_invalid_json.jsonl", dict.fromkeys([2, 4, 5, 6, 7, 8, 9], "invalid_json")),
        ("A02_bom_crlf_blank.jsonl", {}),
        ("A02_blank_only.jsonl", {}),
        ("A02_empty.jsonl", {}),
        ("A03_unicode_separators.jsonl", {}),
        ("A04_envelope.jsonl", dict.fromkeys(range(1, 15), "invalid_request")),
        ("A05_duplicate_ids.jsonl", {}),
        ("A06_method_url_stream.jsonl", dict.fromkeys([2, 3, 4, 5, 6, 7, 9, 11], "invalid_request")),
        (
            "A07_models.jsonl",
            {2: "model_not_found", 4: "invalid_request", 5: "invalid_request", 6: "model_not_found"},
        ),
        ("A10_unicode.jsonl", dict.fromkeys([3, 4, 9], "invalid_json")),
        ("A15_order_n.jsonl", {}),
        ("A16_mixed_counts.jsonl", {}),
        ("A16_all_bad.jsonl", {1: "invalid_json", 2: "invalid_request", 3: "invalid_request"}),
    ],
)
def test_cases_are_refused_where_no_engine_is_needed(file: str, bad: dict[int, str]) -> None:
    case = next(case for case in read_cases() if case.file == file)
    lines = read(case.path.read_bytes())
    assert {number: kind for number, kind in kinds(lines).items() if kind != "ok"} == bad


def test_ids_of_case_a01_are_read_where_they_can_be() -> None:
    lines = read(read_cases()[0].path.read_bytes())
    ids = [line.custom_id for line in lines if not isinstance(line, BlankLine)]
    assert ids == ["a01-1", "a01-2", "a01-3", "a01-4", None, "a01-6", "a01-7", None, "a01-9", "a01-10"]


def test_lines_end_at_lf_only_and_offsets_join() -> None:
    content = b"\xef\xbb\xbf" + chat("1") + b"\r\n\r\n \t\r\n" + chat("2\u2028\u0085\u2029") + b"\n\n" + chat("3")
    lines = read(content)
    assert [type(line) for line in lines] == [InputLine, BlankLine, BlankLine, InputLine, BlankLine, InputLine]
    assert [line.line for line in lines] == [1, 2, 3, 4, 5, 6]
    assert [line.offset for line in lines[1:]] == [line.offset + line.length for line in lines[:-1]]
    assert lines[-1].offset + lines[-1].length == len(content)


few_examples = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@few_examples
@given(
    custom_id=st.text(min_size=1),
    body=st.dictionaries(st.text().filter(lambda key: key not in ("model", "stream")), json_values),
    ascii_only=st.booleans(),
)
def test_every_request_survives_unchanged(custom_id: str, body: dict[str, object], ascii_only: bool) -> None:
    line = {"custom_id": custom_id, "method": "POST", "url": "/v1/completions", "body": body}
    read = request(json.dumps(line, ensure_ascii=ascii_only).encode(), include_request=True)
    assert (read.custom_id, read.id_hash) == (custom_id, hash_id(custom_id))
    assert json.dumps(json.loads(read.body)) == json.dumps({**body, "model": "test-model"})
    assert read.original is not None
    assert json.loads(read.original) == line
    assert read.tokens >= 1


@given(
    content=st.lists(st.sampled_from([b"\n", b"\r", b"\r\n", b" ", b"{}", b"\xef\xbb\xbf", b"\xff", chat(), b"12345"])),
    max_line_bytes=st.integers(3, 200),
)
def test_any_bytes_split_alike_from_every_line_on(content: list[bytes], max_line_bytes: int) -> None:
    whole = b"".join(content)
    lines = read(whole, max_line_bytes=max_line_bytes)
    physical = whole.split(b"\n")
    assert [line.length for line in lines] == [len(raw) + 1 for raw in physical[:-1]] + [len(physical[-1])] * bool(
        physical[-1]
    )
    for start in lines:
        stream = io.BytesIO(whole)
        stream.seek(start.offset)
        again = read_lines(
            stream,
            offset=start.offset,
            line=start.line,
            choose_model=choose,
            include_request=False,
            max_line_bytes=max_line_bytes,
        )
        assert list(again) == lines[start.line - 1 :]


class CountingStream(io.BytesIO):
    """A file that notes the largest piece it was asked for."""

    largest = 0

    def readline(self, size: int | None = -1, /) -> bytes:
        piece = super().readline(size)
        self.largest = max(self.largest, len(piece))
        return piece


def test_a_giant_line_is_never_held_whole() -> None:
    giant = b'{"custom_id":"giant","method":"POST","body":"' + b"x" * 3_000_000 + b'"}\n'
    stream = CountingStream(giant + chat("after") + b"\n" + b" " * 500_000)
    lines = list(read_lines(stream, choose_model=choose, include_request=True, max_line_bytes=2_000))
    assert isinstance(lines[0], RejectedLine)
    assert (lines[0].kind, lines[0].custom_id, lines[0].length) == (ErrorKind.LINE_TOO_LONG, "giant", len(giant))
    assert "2000" in lines[0].message
    assert isinstance(lines[1], InputLine)
    assert isinstance(lines[2], BlankLine)
    assert stream.largest <= 64 * 1024


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_the_longest_line_is_allowed_to_the_byte(end: bytes) -> None:
    content = chat()
    assert isinstance(read(content + end, max_line_bytes=len(content))[0], InputLine)
    assert isinstance(read(content + end, max_line_bytes=len(content) - 1)[0], RejectedLine)
    assert isinstance(read(b"\xef\xbb\xbf" + content + end, max_line_bytes=len(content))[0], InputLine)


def test_a_rejected_line_is_a_whole_result() -> None:
    rejected = rejection(chat("任务-é", stream=True), include_request=True)
    result = json.loads(rejected_result("job", 4, rejected))
    assert (result["id"], result["custom_id"], result["line"]) == ("job-4", "任务-é", 1)
    assert result["response"]["status_code"] == 400
    assert result["response"]["body"]["error"]["message"] == rejected.message
    assert result["error"] == {"code": "invalid_request", "message": rejected.message}
    assert result["request"] == json.loads(chat("任务-é", stream=True))
    missing = json.loads(rejected_result("job", 0, rejection(chat(model="other"))))
    assert (missing["response"]["status_code"], missing["error"]["code"]) == (404, "model_not_found")


def test_a_byte_order_mark_is_dropped_only_at_the_start() -> None:
    lines = read(b"\xef\xbb\xbf" + chat("1") + b"\n\xef\xbb\xbf" + chat("2"))
    assert kinds(lines) == {1: "ok", 2: "invalid_json"}


def test_a_long_line_is_blank_only_if_all_of_it_is() -> None:
    lines = read(b" " * 9_000 + b"x\n" + b" " * 9_000, max_line_bytes=2_000)
    assert [type(line) for line in lines] == [RejectedLine, BlankLine]
