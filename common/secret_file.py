"""A password or a token that stands in a file of its own, as containers, Kubernetes and systemd hand them out."""

import os
import stat
from pathlib import Path
from urllib.parse import quote, urlsplit

from common.errors import RefusedError

LONGEST_BYTES = 64 * 1024


def read_secret(path: Path, *, what: str) -> str:
    """The one line in the file `path`, which is a `what`.

    Raises `RefusedError`: it cannot be read, says nothing, or everybody on this machine may read it. Its group may:
    that is how Kubernetes and compose give a file to a process that does not own it.
    """
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(path.stat().st_mode)
            text = file.read(LONGEST_BYTES).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise RefusedError(f"the {what} cannot be read: {reason}", where=str(path)) from error
    _check_mode(mode, path, what=what)
    if not text or "\n" in text:
        raise RefusedError(f"the {what} is not one line", where=str(path))
    return text


def check_private(path: Path, *, what: str) -> None:
    """Raises as `read_secret`, but the file may be empty: what it holds is read by somebody else."""
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
    except OSError as error:
        raise RefusedError(f"the {what} cannot be read: {error.strerror}", where=str(path)) from error
    _check_mode(mode, path, what=what)


def shows_password(url: str | None) -> bool:
    """Whether `url`, given on a command line, would show a password to everybody who lists processes."""
    return url is not None and ":" in url.partition("://")[2].rpartition("@")[0]


def with_password(url: str, path: Path) -> str:
    """`url` with the password in the file `path`. Raises `RefusedError`, also where `url` has one of its own."""
    parts = urlsplit(url)
    if parts.password is not None:
        raise RefusedError(
            "two passwords for Redis, one in its URL and one in a file",
            where=str(path),
            do="leave the one in the URL out",
        )
    password = quote(read_secret(path, what="password of Redis"), safe="")
    user, _, place = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"{user}:{password}@{place}").geturl()


def _check_mode(mode: int, path: Path, *, what: str) -> None:
    if mode & stat.S_IRWXO:
        raise RefusedError(
            f"the {what} is open to everybody on this machine (mode {mode:04o})",
            where=str(path),
            do=f"chmod 600 {path}",
        )
