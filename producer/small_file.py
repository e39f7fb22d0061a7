"""A small file of a job directory that one process leaves for another: whole and synced, or not there at all."""

import os
import secrets
from pathlib import Path

from producer.disk import writing_to
from producer.input_file import create_private, sync_folder


def replace_file(path: Path, content: bytes, *, what: str) -> None:
    """Put `content` in place of what stands at `path`; `what` names it to the user. Raises `DiskError`."""
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    with writing_to(path, what=what):
        try:
            with create_private(draft) as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, path)
            sync_folder(path.parent)
        finally:
            draft.unlink(missing_ok=True)
