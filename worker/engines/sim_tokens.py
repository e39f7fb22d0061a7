"""How many tokens a simulated engine has made, kept where a kill -9 does not reach it: for measures of wasted work.

A token counts when it is made, whatever becomes of its line; what a worker publishes is counted in `worker.metrics`.
"""

import mmap
import os
import struct
from pathlib import Path

TOKENS_VARIABLE = "BAKEHOUSE_SIM_TOKENS"
"""A folder in which each process keeps its count, in a file of its own; unset: nothing is kept."""
_COUNT = struct.Struct("<Q")


class TokenCount:
    """The count of this process: a mapped file, which the kernel keeps when the process dies."""

    def __init__(self, folder: Path | None) -> None:
        self._total = 0
        self._map = None if folder is None else _map_new_file(folder)

    @classmethod
    def from_environment(cls) -> "TokenCount":
        """The one that the environment asks for, or one that is kept nowhere."""
        folder = os.environ.get(TOKENS_VARIABLE)
        return cls(Path(folder) if folder else None)

    def add(self, tokens: int) -> None:
        """So many more were made."""
        self._total += tokens
        if self._map is not None:
            _COUNT.pack_into(self._map, 0, self._total)


def tokens_made(folder: Path) -> int:
    """Tokens that all processes with their counts in `folder` have made, the dead ones too."""
    return sum(_COUNT.unpack(file.read_bytes())[0] for file in folder.iterdir())


def _map_new_file(folder: Path) -> mmap.mmap:
    file = folder / f"{os.getpid()}-{os.urandom(4).hex()}"
    with file.open("xb+") as opened:
        opened.write(_COUNT.pack(0))
        opened.flush()
        return mmap.mmap(opened.fileno(), _COUNT.size)
