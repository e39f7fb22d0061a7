"""A stand-in for the model hub on the loopback interface: refuses as the real one does, for tests of starts.

What it answers depends on the owner in the model's name: `gated/m`, `expired/m` (a token that is valid no more),
`broken/m` (the hub's own fault); every other is not there. Headers and texts are those of huggingface.co.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_REFUSALS = {
    "gated": (401, "GatedRepo", "Access to model gated/m is restricted. You must have access to it."),
    "forbidden": (
        403,
        "GatedRepo",
        "Access to model forbidden/m is restricted and you are not in the authorized list.",
    ),
    "expired": (401, "", "Invalid credentials in Authorization header"),
    "broken": (500, "", "Internal Error - We're working hard to fix this as soon as possible!"),
}
_ABSENT = (401, "RepoNotFound", "Repository not found")
"""As to anybody without a token: the hub does not tell a private model from none."""


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        """Refuse, as the owner in the path says."""
        words = self.path.strip("/").split("/")
        owner = words[2] if words[:2] == ["api", "models"] else words[0]
        status, code, message = _REFUSALS.get(owner, _ABSENT)
        body = b'{"error":"refused"}'
        self.send_response(status)
        if code:
            self.send_header("X-Error-Code", code)
        self.send_header("X-Error-Message", message)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET
    do_POST = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def stand_in_hub() -> Iterator[str]:
    """Its URL, for `HF_ENDPOINT`."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
