"""One call of an ASGI application in this process: a line's body goes in, its status and body come out.

Clients such as httpx's ASGI transport do not tell the application when their caller goes away, and so a
cancelled request runs on inside the engine. This one does: it delivers `http.disconnect`, as a server would,
and waits for the application to return.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from worker.engines.base import Answer

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

_GRACE_S = 5.0
"""How long an application may take to notice that its client went away; then its task is cancelled."""


async def call(application: Application, url: str, body: bytes) -> Answer:
    """Post `body` (JSON) to `url` and return what the application answers.

    Cancelling delivers `http.disconnect` and returns once the application has. Raises what the application
    raises, unless it had answered in full before.
    """
    exchange = _Exchange(body)
    task = asyncio.ensure_future(application(_scope(url, body), exchange.receive, exchange.send))
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError:
        exchange.disconnected.set()
        await _settled(task)
        raise
    if not exchange.complete:
        task.result()
        raise ConnectionError(f"the application ended without an answer to {url}")
    task.exception()  # after a whole answer, what it raised is its own affair
    return Answer(status=exchange.status, body=b"".join(exchange.parts))


class _Exchange:
    """Both directions of one call."""

    def __init__(self, body: bytes) -> None:
        self.disconnected = asyncio.Event()
        self.status = 0
        self.parts: list[bytes] = []
        self.complete = False
        self._body: bytes | None = body

    async def receive(self) -> Message:
        """The whole body first; after that nothing, until the caller goes away."""
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self.disconnected.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Keep the status and the parts of the body."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
        elif message["type"] == "http.response.body":
            self.parts.append(message.get("body", b""))
            self.complete = not message.get("more_body", False)


async def _settled(task: "asyncio.Future[None]") -> None:
    """Wait for `task` to end, also when cancelled again; after the grace time cancel it, then leave it."""
    loop = asyncio.get_running_loop()
    for _ in range(2):
        deadline = loop.time() + _GRACE_S
        while not task.done() and loop.time() < deadline:
            try:
                await asyncio.wait({task}, timeout=deadline - loop.time())
            except asyncio.CancelledError:
                continue
        if task.done():
            break
        task.cancel()
    if task.done() and not task.cancelled():
        task.exception()


def _scope(url: str, body: bytes) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": url,
        "raw_path": url.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [
            (b"host", b"localhost"),
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
        ],
        "client": ("127.0.0.1", 0),
        "server": ("localhost", 80),
        "state": {},
    }
