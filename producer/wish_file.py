"""The file `want` of a job directory: a wish left for the job's collector on its own host, with or without Redis.

It holds the newest wish alone, and stays when it was heard: a wish is known by its nonce.
"""

from pathlib import Path

from producer.small_file import replace_file
from producer.steering import Wish


def leave_wish(path: Path, wish: Wish) -> None:
    """Put `wish` in place of any earlier one. Raises `DiskError`."""
    replace_file(path, str(wish).encode(), what="the wish")


def read_wish(path: Path) -> Wish | None:
    """The newest wish left at `path`, None where there is none."""
    try:
        return Wish.parse(path.read_text())
    except (OSError, ValueError):
        return None
