"""Our ASGI caller: whole answers, disconnects on cancellation, and what an application does wrong."""

import asyncio
from typing import Any

import pytest

from worker.clock import run_virtual
from worker.engines.asgi_call import Application, Receive, Send, call
from worker.engines.base import Answer


async def _answer(send: Send, *parts: bytes, status: int = 200) -> None:
    await send({"type": "http.response.start", "status": status, "headers": []})
    for number, part in enumerate(parts):
        await send({"type": "http.response.body", "body": part, "more_body": number < len(parts) - 1})


def _post(application: Application, body: bytes = b"{}") -> Answer:
    return run_virtual(call(application, "/v1/x", body))


def test_status_and_body_come_back() -> None:
    seen: dict[str, Any] = {}

    async def application(scope: Any, receive: Receive, send: Send) -> None:
        seen.update(scope, message=await receive())
        await _answer(send, b'{"a":', b"1}", status=404)

    assert _post(application, b'{"x":1}') == Answer(404, b'{"a":1}')
    assert (seen["method"], seen["path"], seen["message"]["body"]) == ("POST", "/v1/x", b'{"x":1}')
    assert (b"content-type", b"application/json") in seen["headers"]


def test_cancelling_disconnects_and_waits_for_the_application() -> None:
    events: list[str] = []

    async def application(scope: Any, receive: Receive, send: Send) -> None:
        await receive()
        events.append((await receive())["type"])
        await asyncio.sleep(1)
        await _answer(send, b"client disconnected", status=400)
        events.append("returned")

    async def main() -> None:
        task = asyncio.create_task(call(application, "/", b""))
        await asyncio.sleep(5)
        task.cancel()
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run_virtual(main())
    assert events == ["http.disconnect", "returned"]


def test_an_application_deaf_to_the_disconnect_is_cancelled() -> None:
    ended = []

    async def application(scope: Any, receive: Receive, send: Send) -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append(asyncio.get_running_loop().time())

    async def main() -> None:
        task = asyncio.create_task(call(application, "/", b""))
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.wait({task})

    run_virtual(main())
    assert ended == [pytest.approx(6.0)]


def test_what_the_application_raises_comes_out() -> None:
    async def application(scope: Any, receive: Receive, send: Send) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        _post(application)


def test_a_whole_answer_counts_more_than_what_is_raised_after_it() -> None:
    async def application(scope: Any, receive: Receive, send: Send) -> None:
        await _answer(send, b"{}", status=500)
        raise ZeroDivisionError

    assert _post(application) == Answer(500, b"{}")


def test_half_an_answer_is_none() -> None:
    async def application(scope: Any, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{", "more_body": True})

    with pytest.raises(ConnectionError):
        _post(application)
