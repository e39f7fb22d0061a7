"""The result line: one physical line of strict JSON, whatever stood in the answer."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from common.errors import ErrorKind
from common.result_line import Meta, MetaTemplate, build_result_line, to_json


def strict_loads(line: bytes) -> Any:
    """`line` as JSON that allows no NaN and no Infinity."""

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    return json.loads(line.decode("utf-8"), parse_constant=refuse)


def build(**changes: Any) -> bytes:
    arguments: dict[str, Any] = {
        "job": "j",
        "seq": 7,
        "custom_id": "c",
        "line": 9,
        "status": 200,
        "request_id": "r",
        "body": b'{"ok":true}',
        "kind": None,
        "message": "",
        "meta": Meta(),
        "original": None,
        **changes,
    }
    return build_result_line(**arguments)


def test_good_result() -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, 600000, tzinfo=UTC)
    result = strict_loads(build(meta=Meta(model="m", attempts=1, started_at=at, latency_s=0.5)))
    assert list(result) == ["id", "custom_id", "line", "response", "error", "meta"]
    assert result["id"] == "j-7"
    assert result["response"] == {"status_code": 200, "request_id": "r", "body": {"ok": True}}
    assert result["error"] is None
    assert list(result["meta"]) == list(Meta._fields)
    assert result["meta"]["started_at"] == "2026-01-02T03:04:05.600000Z"
    assert result["meta"]["queue_s"] is None


def test_failure_without_a_body_gets_an_error_object() -> None:
    result = strict_loads(build(status=504, kind=ErrorKind.TIMEOUT, message="late", body=None))
    assert result["error"] == {"code": "timeout", "message": "late"}
    assert result["response"]["body"]["error"] == {"message": "late", "type": "timeout", "param": None, "code": 504}


def test_request_follows_line() -> None:
    result = strict_loads(build(original=b'{"custom_id": "c",\r "messages": []}'))
    assert list(result)[2:4] == ["line", "request"]
    assert result["request"] == {"custom_id": "c", "messages": []}


@pytest.mark.parametrize("body", [b'{\n "a": "x\\ny"\r\n}', b' { "a" : "x\\ny" } '])
def test_one_physical_line(body: bytes) -> None:
    line = build(body=body)
    assert b"\n" not in line
    assert b"\r" not in line
    assert strict_loads(line)["response"]["body"] == {"a": "x\ny"}


@pytest.mark.parametrize(
    ("bad", "good"),
    [
        (float("nan"), None),
        (float("-inf"), None),
        (10**30, 1e30),
        (10**400, None),
        ("a\ud800b", "a\ufffdb"),
        ("\U0001f600 ok", "\U0001f600 ok"),
        ({"k\udfff": [float("inf"), "x"]}, {"k\ufffd": [None, "x"]}),
    ],
)
def test_object_bodies_become_strict(bad: object, good: object) -> None:
    assert strict_loads(build(body={"value": bad, "other": "\udc00"}))["response"]["body"]["value"] == good


def test_message_with_a_lone_surrogate() -> None:
    result = strict_loads(build(status=400, kind=ErrorKind.REJECTED, message="\ud800!", body=b"{}"))
    assert result["error"]["message"] == "\ufffd!"


@pytest.mark.parametrize("model", ["m", '100 %b "attempts":null', 'x","latency_s":null,"y":"%'])
def test_the_template_gives_the_same_meta(model: str) -> None:
    at = datetime(2026, 1, 2, tzinfo=UTC)
    meta = Meta(model=model, worker="w%", deliveries=2, started_at=at, queue_s=0.25)
    rendered = MetaTemplate(meta).render(request_sha256=b'"ab"', attempts=3, finished_at=to_json(at), latency_s=1e-6)
    whole = meta._replace(request_sha256="ab", attempts=3, finished_at=at, latency_s=1e-6)
    assert rendered == to_json(whole._asdict())
    assert build(meta=rendered) == build(meta=whole)
