"""Which model this is: a revision for `meta.model_revision`, and a digest equal only for equal models.

The digest decides which workers may share a job. Pure reading of files: imports no vllm.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path

from worker.engines.model_check import cached_snapshot, is_path, weight_files

_COMMIT = re.compile(r"[0-9a-f]{40}")
_TEXTS = ("*.json", "*.jinja", "*.txt", "*.model", "*.tiktoken")
_SAMPLES = 64
_SAMPLE_BYTES = 16 * 1024
"""64 samples of 16 KiB, evenly spread: 1 MiB a weight file instead of hundreds of GB, and any training or
quantisation run moves almost all weights."""


def model_revision(model: str, revision: str | None, *, environment: Mapping[str, str]) -> str | None:
    """The commit of a downloaded model, else `content-` and a hash of what the folder or file holds.

    None when neither is known. Blocks for at most about a second.
    """
    if not is_path(model):
        snapshot = cached_snapshot(model, revision, environment=environment)
        return snapshot.name if snapshot is not None else revision
    path = Path(model).resolve()
    if _COMMIT.fullmatch(path.name) and path.parent.name == "snapshots":
        return path.name
    return f"content-{_content_hash(path)[:40]}"


def model_digest(
    revision: str,
    *,
    dtype: str,
    quantisation: str | None,
    chat_template: str | None,
    adapters: Mapping[str, str] | None = None,
) -> str:
    """16 hex digits over all that decides what a model answers. `adapters`: served name -> revision."""
    named = [sorted(adapters.items())] if adapters else []
    facts = json.dumps([revision, dtype, quantisation, chat_template, *named], ensure_ascii=True)
    return hashlib.sha256(facts.encode()).hexdigest()[:16]


def _content_hash(path: Path) -> str:
    """Hex SHA-256 over the names and texts of a model folder, and over samples of its weights."""
    total = hashlib.sha256()
    if path.is_file():
        texts, weights = [], [path]
    else:
        texts = sorted({file for pattern in _TEXTS for file in path.glob(pattern)})
        weights = weight_files(path)
    for file in texts:
        total.update(f"{file.name}\0{hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    for file in weights:
        total.update(f"{file.name}\0{file.stat().st_size}\0{_sampled_hash(file)}\n".encode())
    return total.hexdigest()


def _sampled_hash(file: Path) -> str:
    digest = hashlib.sha256()
    size = file.stat().st_size
    step = max(_SAMPLE_BYTES, (size - _SAMPLE_BYTES) // (_SAMPLES - 1))
    with file.open("rb") as stream:
        for offset in range(0, size, step):
            stream.seek(offset)
            digest.update(stream.read(_SAMPLE_BYTES))
    return digest.hexdigest()
