"""A server that says it is an old Redis and does nothing else: for the one refusal that needs a server nobody has."""

import socketserver
import threading
from typing import Self


class StandInRedis:
    """Answers HELLO (or not, as before Redis 6), CLIENT and INFO on loopback. A context manager."""

    def __init__(self, *, version: str, knows_hello: bool) -> None:
        self.version = version
        self.knows_hello = knows_hello
        self.asked = 0
        """How often it was asked for its version."""
        stand_in = self

        class Connection(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                while header := self.rfile.readline():
                    words = [self._word() for _ in range(int(header[1:]))]
                    self.wfile.write(stand_in.answer(words))

            def _word(self) -> bytes:
                length = int(self.rfile.readline()[1:])
                return self.rfile.read(length + 2)[:-2]

        class Listener(socketserver.ThreadingTCPServer):
            daemon_threads = True

        self._listener = Listener(("127.0.0.1", 0), Connection)
        self.url = f"redis://127.0.0.1:{self._listener.server_address[1]}/0"
        self._thread = threading.Thread(target=self._listener.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown()
        self._thread.join()
        self._listener.server_close()

    def answer(self, words: list[bytes]) -> bytes:
        """One reply."""
        name = words[0].upper()
        if name == b"INFO":
            self.asked += 1
            facts = f"redis_version:{self.version}\r\nmaxmemory_policy:noeviction\r\n"
            return f"${len(facts)}\r\n{facts}\r\n".encode()
        if name == b"HELLO" and self.knows_hello:
            text = self.version
            return f"%3\r\n+server\r\n+redis\r\n+version\r\n+{text}\r\n+proto\r\n:3\r\n".encode()
        if name in (b"CLIENT", b"HELLO"):
            return f"-ERR unknown command `{words[0].decode()}`, with args beginning with: \r\n".encode()
        return b"+OK\r\n"
