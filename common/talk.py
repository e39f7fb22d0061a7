"""What a command says on stderr. Its disk may be full: what is said is lost then, and the work goes on."""

import sys
from contextlib import suppress
from typing import TextIO, cast


class Talk:
    """A text stream over `stream` whose writes do not fail; in all else it is `stream`."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write `text`, if that can be done."""
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Write out what is buffered, if that can be done."""
        with suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


def make_stderr_steady() -> None:
    """From now on no write to `sys.stderr` raises `OSError`. For the mains of commands; once is enough."""
    if sys.stderr is not None and not isinstance(sys.stderr, Talk):
        sys.stderr = cast(TextIO, Talk(sys.stderr))
