"""The file `deadline` of a job directory: set by a command that asks for one, read by the collector at each look.

So a command with another deadline moves that of a job which another process runs.
"""

from contextlib import suppress
from pathlib import Path

from producer.deadline import Deadline
from producer.small_file import replace_file


def leave_deadline(path: Path, deadline: Deadline) -> None:
    """Put `deadline` in place of any earlier one. Raises `DiskError`."""
    replace_file(path, deadline.to_json(), what="the deadline")


def read_deadline(path: Path) -> Deadline | None:
    """The deadline at `path`, None where there is none."""
    with suppress(OSError, ValueError, KeyError):
        return Deadline.from_json(path.read_bytes())
    return None
