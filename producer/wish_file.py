"""The file `want` of a job directory: a wish left for the job's collector on its own host, with or without Redis.

It holds the newest wish alone, and stays when it was heard: a wish is known by its nonce.
"""

import os
from pathlib import Path

from producer.disk import writing_to
from producer.input_file import create_private
from producer.steering import Wish


def leave_wish(path: Path, wish: Wish) -> None:
    """Put `wish` in place of any earlier one: whole, or not at all. Raises `DiskError`."""
    draft = path.with_name(f"{path.name}.{wish.nonce}")
    with writing_to(path, what="the wish"):
        try:
            with create_private(draft) as file:
                file.write(str(wish).encode())
            os.replace(draft, path)
        finally:
            draft.unlink(missing_ok=True)


def read_wish(path: Path) -> Wish | None:
    """The newest wish left at `path`, None where there is none."""
    try:
        return Wish.parse(path.read_text())
    except (OSError, ValueError):
        return None
