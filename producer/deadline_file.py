"""The file `deadline` of a job directory: set by a command that asks for one, read by the collector at each look.

So a command with another deadline moves that of a job which another process runs.
"""

import os
from contextlib import suppress
from pathlib import Path

from producer.deadline import Deadline
from producer.disk import writing_to
from producer.input_file import create_private, sync_folder


def leave_deadline(path: Path, deadline: Deadline) -> None:
    """Put `deadline` in place of any earlier one: whole and synced, or not at all. Raises `DiskError`."""
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    with writing_to(path, what="the deadline"):
        try:
            draft.unlink(missing_ok=True)
            with create_private(draft) as file:
                file.write(deadline.to_json())
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, path)
            sync_folder(path.parent)
        finally:
            draft.unlink(missing_ok=True)


def read_deadline(path: Path) -> Deadline | None:
    """The deadline at `path`, None where there is none."""
    with suppress(OSError, ValueError, KeyError):
        return Deadline.from_json(path.read_bytes())
    return None
