"""The rules of a line: strict JSON, the fields a request needs, and that all else reaches the engine as it was."""

import json

import pytest

from common.errors import ErrorKind
from producer.reader import hash_id
from tests.reading import MESSAGES, body_of, chat, rejection, request


@pytest.mark.parametrize(
    ("content", "custom_id"),
    [
        (b'{"custom_id":"a","x":NaN}', "a"),
        (b'{"x":[1,{"custom_id":"inner"}],"custom_id":"a","y":-Infinity}', "a"),
        (b'{"custom_id":"a","x":1e999}', "a"),
        (b'{"custom_id":"a","x":"\\ud83d"}', "a"),
        (b'{"custom_id":"a\\ud83d"}', None),
        (b'{"custom_id":"a","x":"\xff"}', "a"),
        (b'{"custom_id":"a\xff"}', None),
        (b'{"custom_id":17,"x":NaN}', None),
        (b'{"custom_id":"","x":NaN}', None),
        (b'{"method":"POST", "custom_id" : "\\u4efb", "body": {"messages": [{"con', "任"),
        (b'{"body":{"custom_id":"inner"},"custom_id":"a"', None),
        (b'{"body":{"custom_id":"inner"', None),
        (b'{"custom_id":"a"}{"custom_id":"b"}', None),
        (b'{"custom_id":"a","text":"say \\"custom_id\\": \\"b\\""', "a"),
        (b'{"custom_id":"a","x":"\t"}', "a"),
        (b"{'custom_id':'a'}", None),
        (b'{"custom_id":"a","x":' + b"[" * 300 + b"]" * 300 + b"}", "a"),
        (b'{"custom_id":"a","x":' + b"[" * 90_000, "a"),
        (b'{"custom_id":"a","x":' + b"9" * 5_000 + b"}", "a"),
        (b'["custom_id", NaN]', None),
        (b"{}{}", None),
        (b"\x00", None),
        (b"\xc2\xa0", None),
    ],
)
def test_what_is_not_strict_json(content: bytes, custom_id: str | None) -> None:
    line = rejection(content, include_request=True)
    assert line.kind is ErrorKind.INVALID_JSON
    assert line.custom_id == custom_id
    assert line.original is None
    assert line.id_hash == (hash_id(custom_id) if custom_id else None)
    assert "line 1 column" not in line.message


@pytest.mark.parametrize(
    ("content", "field"),
    [
        (b"null", "object"),
        (chat(17), "custom_id"),
        (chat(""), "custom_id"),
        (chat(None), "custom_id"),
        (chat(["a"]), "custom_id"),
        (b'{"custom_id":"a"}', "messages"),
        (b'{"custom_id":"a","messages":[],"prompt":"x"}', "messages and prompt"),
        (b'{"custom_id":"a","messages":[]}', "messages"),
        (b'{"custom_id":"a","messages":[null]}', "messages"),
        (b'{"custom_id":"a","prompt":"x","model":""}', "model"),
        (b'{"custom_id":"a","prompt":"x","stream":true}', "stream"),
        (b'{"custom_id":"a","method":"POST","url":"/v1/completions"}', "body"),
        (b'{"custom_id":"a","url":"/v1/completions","body":{}}', "method"),
        (b'{"custom_id":"a","method":"POST","body":{}}', "url"),
        (b'{"custom_id":"a","method":"POST","url":["/v1/completions"],"body":{}}', "url"),
        (chat(messages="hi"), "messages"),
        (chat(messages={}), "messages"),
        (chat(model=None), "model"),
        (chat(model=5), "model"),
        (chat(stream=0), "stream"),
        (chat(stream="false"), "stream"),
    ],
)
def test_refusals_name_the_field(content: bytes, field: str) -> None:
    line = rejection(content)
    assert line.kind is ErrorKind.INVALID_REQUEST
    assert field in line.message


@pytest.mark.parametrize(
    "content",
    [chat(stream=False), chat(stream=None), body_of("{}"), chat(temperature="hot"), chat(n=-1), chat(max_tokens="x")],
)
def test_the_rest_is_the_engines_to_judge(content: bytes) -> None:
    assert request(content).model == "test-model"


def test_a_line_without_model_gets_the_chosen_one() -> None:
    assert json.loads(request(body_of('{"prompt":"x"}')).body) == {"prompt": "x", "model": "test-model"}


@pytest.mark.parametrize(
    ("field", "value", "url"),
    [
        ("messages", MESSAGES, "/v1/chat/completions"),
        ("prompt", "x", "/v1/completions"),
        ("input", ["x", "y"], "/v1/embeddings"),
    ],
)
def test_simple_lines_become_requests_and_keep_their_original(field: str, value: object, url: str) -> None:
    content = json.dumps({"custom_id": "a", field: value, "temperature": 1.0}).encode()
    line = request(b"  " + content + b" ")
    assert (line.url, line.original) == (url, content)
    assert json.loads(line.body) == {field: value, "temperature": 1.0, "model": "test-model"}


def test_openai_lines_keep_their_original_only_when_asked() -> None:
    assert request(chat()).original is None
    assert request(chat(), include_request=True).original == chat()
    assert rejection(chat(stream=1)).original is None
    assert rejection(chat(stream=1), include_request=True).original == chat(stream=1)
    simple = b'{"custom_id":"a","messages":[]}'
    assert rejection(simple).original == simple


@pytest.mark.parametrize(
    "text",
    ["1e999", "-1e999", "1.7976931348623159e308", '[{"x":[1e400]}]', '"Infinity", "x": 1e999'],
)
def test_numbers_that_overflow_are_refused_wherever_they_stand(text: str) -> None:
    for content in (
        body_of('{"seed":' + text + "}"),
        b'{"custom_id":"a","prompt":"x","seed":' + text.encode() + b"}",
        b'{"custom_id":"a","method":"POST","url":"/v1/completions","body":{},"more":' + text.encode() + b"}",
        b'{"custom_id":"a","messages":[],"seed":' + text.encode() + b"}",
    ):
        line = rejection(content)
        assert (line.kind, line.custom_id, line.original) == (ErrorKind.INVALID_JSON, "a", None)


def test_the_word_infinity_is_only_a_word() -> None:
    assert json.loads(request(body_of('{"prompt":"Infinity NaN"}')).body)["prompt"] == "Infinity NaN"


def test_the_last_of_a_key_that_stands_twice_counts() -> None:
    line = request(body_of('{"prompt":"x","prompt":"y"}'))
    assert json.loads(line.body)["prompt"] == "y"


@pytest.mark.parametrize("text", ["1", "1.0", "-0.0", "1e5", "0.1", "18446744073709551616", "9" * 4000, "5e-324"])
def test_numbers_survive(text: str) -> None:
    number = json.loads(request(body_of('{"seed":' + text + "}")).body, parse_int=str)["seed"]
    wanted = json.loads(text, parse_int=str)
    assert (type(number), repr(number)) == (type(wanted), repr(wanted))


def test_tokens_follow_text_script_and_limit() -> None:
    plain = request(chat(messages=[{"content": "a" * 4000}], max_tokens=10)).tokens
    chinese = request(chat(messages=[{"content": "任" * 4000}], max_tokens=10)).tokens
    assert 1000 < plain < 1050
    assert 4000 < chinese < 4050
    assert request(chat(max_tokens=10, n=3)).tokens == request(chat(max_tokens=30, n=1)).tokens
    assert request(chat(max_tokens=10**30)).tokens < 2**21
    assert request(chat(max_tokens=-5)).tokens > 0
    assert request(b'{"custom_id":"a","input":"hi"}').tokens < 20


def test_messages_never_show_the_text_of_a_request() -> None:
    secret = "do not show"
    for content in (chat(secret[:0], prompt=secret), chat(messages=secret), chat(stream=secret), b'{"x":"do not show'):
        assert secret not in rejection(content).message
