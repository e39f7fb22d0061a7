"""What vLLM's own loader of pictures reaches with the flags that a worker sets: nothing, and it is the request's fault.

The small models of the tests read no pictures; this is the part of vLLM that would fetch them.
"""

import asyncio
import socket
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from worker.engines.vllm_arguments import forbid_fetching

pytestmark = pytest.mark.engine


@pytest.fixture
def nobody() -> Iterator[socket.socket]:
    """A port at which nobody may ask."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening
        listening.settimeout(0)
        with pytest.raises(BlockingIOError):
            listening.accept()


def _load(url: str, arguments: Namespace) -> Any:
    from vllm.multimodal.media import ImageMediaIO, MediaConnector

    connector = MediaConnector(
        allowed_local_media_path=arguments.allowed_local_media_path,
        allowed_media_domains=arguments.allowed_media_domains,
    )
    return asyncio.run(connector.load_from_url_async(url, ImageMediaIO()))


def test_no_url_is_fetched(nobody: socket.socket, tmp_path: Path) -> None:
    arguments = Namespace(allowed_media_domains=None, allowed_local_media_path="")
    forbid_fetching(arguments, empty_folder=str(tmp_path))
    for host in ("127.0.0.1", "localhost", "[::ffff:127.0.0.1]"):
        with pytest.raises(ValueError, match="allowed domains"):
            _load(f"http://{host}:{nobody.getsockname()[1]}/a.png", arguments)


def test_no_file_is_opened(tmp_path: Path) -> None:
    arguments = Namespace(allowed_media_domains=None, allowed_local_media_path="")
    empty = tmp_path / "empty"
    empty.mkdir()
    forbid_fetching(arguments, empty_folder=str(empty))
    secret = tmp_path / "secret.png"
    secret.write_text("what only this file says")
    for url in (secret.as_uri(), f"{empty.as_uri()}/../secret.png", "file:///etc/hostname"):
        with pytest.raises(ValueError, match="must be a subpath"):
            _load(url, arguments)
