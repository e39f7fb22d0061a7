"""A proxy before a Redis server: passes everything on, resets connections, stalls, and swallows replies on demand.

    with Proxy(server.socket) as proxy:          # processes are given proxy.url
        proxy.reset_all()                        # a reset to every client; returns how many there were
        proxy.lose_all()                         # each connection there is falls silent for ever; new ones work
        proxy.stall(); proxy.pass_on()           # bytes wait, connections stay; and go on
        proxy.swallow(0.2, of=("publish",))      # a fifth of them is done, its reply never comes, then a reset
        proxy.swallow(0)                         # no more of it
        proxy.swallowed["publish"]               # how often that happened

A command is known by its name in small letters, a script by its own (`claim`, `publish`, `own` ...). One thread runs an
event loop for all connections; every method may be called from any thread.
"""

import asyncio
import random
import shutil
import socket
import struct
import tempfile
import threading
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import suppress
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Self

from common import script_calls

READ_BYTES = 64 * 1024
_EVALSHA = "evalsha"


class Proxy:
    """See the module. A context manager; it can be started before its server, and outlives restarts of it."""

    def __init__(self, target: Path, *, tcp: bool = False, seed: int = 0) -> None:
        """Connections go on to the unix socket `target`; they come in by TCP on loopback, or by a unix socket.

        `seed`: of the draws which replies are swallowed; drawn, since a fixed rhythm can hit the same step for ever.
        """
        self.swallowed: Counter[str] = Counter()
        """Command -> how often the server did it and its reply was withheld."""
        self.commands: Counter[str] = Counter()
        """Command -> how often it came."""
        self._target = target
        self._tcp = tcp
        self._folder = Path(tempfile.mkdtemp(prefix="bh-proxy-"))
        self._draw = random.Random(seed).random
        self._share = 0.0
        self._of: Collection[str] = ()
        self._links: set[_Link] = set()
        self._loop = asyncio.new_event_loop()
        self._passing = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self.url = ""

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._open(), self._loop).result(10)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def reset_all(self) -> int:
        """Reset every connection; returns how many there were."""
        return asyncio.run_coroutine_threadsafe(self._reset_all(), self._loop).result(10)

    def lose_all(self) -> int:
        """Let nothing through any more on the connections there are, as a firewall that forgot them; how many."""
        return asyncio.run_coroutine_threadsafe(self._lose_all(), self._loop).result(10)

    def stall(self) -> None:
        """Let nothing through in either direction; connections stay, new ones are taken."""
        self._loop.call_soon_threadsafe(self._passing.clear)

    def pass_on(self) -> None:
        """Let everything through again, also what waited."""
        self._loop.call_soon_threadsafe(self._passing.set)

    def swallow(self, share: float, *, of: Collection[str] = ()) -> None:
        """From now on withhold this share of the replies to commands among `of` (none: any), and reset after each.

        A pipeline of many commands seldom comes through at a large share.
        """
        self._share, self._of = share, frozenset(of)

    def is_chosen(self, command: str) -> bool:
        """Count one command that comes in; whether its reply is to be withheld."""
        self.commands[command] += 1
        return (not self._of or command in self._of) and self._draw() < self._share

    async def _open(self) -> None:
        self._passing.set()
        if self._tcp:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
            self.url = f"redis://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/0"
        else:
            path = self._folder / "proxy.sock"
            self._server = await asyncio.start_unix_server(self._serve, path)
            self.url = f"unix://{path}"

    async def _close(self) -> None:
        self._server.close()
        self._passing.set()
        await self._reset_all()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _reset_all(self) -> int:
        links = list(self._links)
        for link in links:
            link.reset()
        return len(links)

    async def _lose_all(self) -> int:
        links = list(self._links)
        for link in links:
            link.lose()
        return len(links)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One client; while the server is away it is reset at once, as by a host without one."""
        link = _Link(self, reader, writer, passing=self._passing)
        self._links.add(link)
        try:
            await link.run(self._target)
        except OSError:
            link.reset()
        finally:
            self._links.discard(link)


class _Link:
    """One client's connection and its own to the server."""

    def __init__(
        self, proxy: Proxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, passing: asyncio.Event
    ) -> None:
        self._proxy = proxy
        self._reader, self._writer = reader, writer
        self._passing = passing
        self._chosen: str | None = None
        self._withheld = False

    async def run(self, target: Path) -> None:
        """Pass on until either side ends, a reply is swallowed, or it is reset."""
        server_reader, self._server_writer = await asyncio.open_unix_connection(target)
        back = asyncio.create_task(self._bring_back(server_reader))
        try:
            await self._bring_on()
            await back
        finally:
            back.cancel()
            self._server_writer.close()
            if self._chosen is not None:
                self._proxy.swallowed[self._chosen] += self._withheld
            self.reset()

    def lose(self) -> None:
        """Be silent from now on, in both directions."""
        self._passing = asyncio.Event()

    def reset(self) -> None:
        """End it without a word: pending bytes are dropped, TCP sends an RST."""
        client = self._writer.get_extra_info("socket")
        if client is not None and client.family != socket.AF_UNIX:
            with suppress(OSError):
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    async def _bring_on(self) -> None:
        """Client to server; behind a command whose reply is to be withheld nothing more."""
        commands = _Commands()
        while data := await self._reader.read(READ_BYTES):
            await self._passing.wait()
            taken = 0
            for name, end in commands.feed(data):
                if self._proxy.is_chosen(name):
                    self._chosen, taken = name, end
                    break
            self._server_writer.write(data[:taken] if self._chosen else data)
            await self._server_writer.drain()
            if self._chosen:
                break
        self._server_writer.write_eof()

    async def _bring_back(self, reader: asyncio.StreamReader) -> None:
        """Server to client, unless it is withheld; ends once the server has done all that it was sent."""
        try:
            while data := await reader.read(READ_BYTES):
                if self._chosen:
                    self._withheld = True
                    continue
                await self._passing.wait()
                self._writer.write(data)
                await self._writer.drain()
        finally:
            self.reset()


class _Commands:
    """Finds commands (arrays of bulk strings) in a stream that comes in pieces."""

    def __init__(self) -> None:
        self._buffer = b""
        self._words: list[bytes] = []
        self._expected = 0

    def feed(self, data: bytes) -> Iterator[tuple[str, int]]:
        """Each command that `data` completes: its name, and where in `data` it ends."""
        before = len(self._buffer)
        self._buffer += data
        position = 0
        while (line_end := self._buffer.find(b"\r\n", position)) >= 0:
            kind, number = self._buffer[position : position + 1], self._buffer[position + 1 : line_end]
            if kind == b"*":
                self._expected, self._words = int(number), []
                position = line_end + 2
                continue
            end = line_end + 2 + int(number) + 2
            if len(self._buffer) < end:
                break
            self._words.append(self._buffer[line_end + 2 : end - 2][:64])
            position = end
            if len(self._words) == self._expected:
                yield _name_of(self._words), position - before
        self._buffer = self._buffer[position:]


def _name_of(words: list[bytes]) -> str:
    name = words[0].decode("ascii", "replace").lower()
    return _scripts().get(words[1].decode("ascii", "replace"), name) if name == _EVALSHA else name


@cache
def _scripts() -> dict[str, str]:
    """Hash -> name of each of our scripts."""
    files = [Path(entry.name) for entry in resources.files("common.scripts").iterdir()]
    return {script_calls.load(file.stem).sha: file.stem for file in files if file.suffix == ".lua"}
