"""Looks at a model before the engine starts: what can never load is said at once, with what to do.

Pure reading of files: imports no vllm, downloads nothing. The engine then judges what is left.
"""

import json
import os
import re
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

from common.errors import EngineStartError

_INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.pth", "*.gguf")
_CONFIGS = ("config.json", "params.json")
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


def served_name(model: str, given: str | None) -> str:
    """The name that requests use: the one given, else the model's NAME, else its folder's name."""
    return given or (Path(model).resolve().name if is_path(model) else model)


def is_path(model: str) -> bool:
    """Whether `model` means a place on this machine, not a name on a hub: it, or the folder it would be in, is here."""
    folder = os.path.dirname(model)
    return os.path.exists(model) or _NAME.fullmatch(model) is None or (folder != "" and os.path.isdir(folder))


def check_model(
    model: str,
    *,
    environment: Mapping[str, str],
    revision: str | None = None,
    weights: bool = True,
    memory_bytes: int | None = None,
) -> None:
    """Raises `EngineStartError` (permanent) when `model` can never load here.

    `revision`: of a hub's model, None for its main one. `weights`: whether its weights are to be read at all
    (`--load-format` may say otherwise). `memory_bytes`: what there is for them, if known.
    """
    if is_path(model):
        path = Path(model)
        if path.is_file():
            return
        _check_folder(path, weights=weights, memory_bytes=memory_bytes)
    elif is_offline(environment):
        snapshot = cached_snapshot(model, revision, environment=environment)
        if snapshot is None:
            raise EngineStartError(
                f"the model {model} is not on this machine, and HF_HUB_OFFLINE forbids to download it",
                where=str(hub_cache(environment)),
                do="download it first, unset HF_HUB_OFFLINE, or give the path of a model folder",
            )
        _check_folder(snapshot, weights=weights, memory_bytes=memory_bytes)


def hub_cache(environment: Mapping[str, str]) -> Path:
    """Where downloaded models lie."""
    if cache := environment.get("HF_HUB_CACHE"):
        return Path(cache)
    home = environment.get("HF_HOME") or os.path.expanduser("~/.cache/huggingface")
    return Path(home) / "hub"


def cached_snapshot(model: str, revision: str | None, *, environment: Mapping[str, str]) -> Path | None:
    """The folder of a downloaded model, named by its commit; None when it is not here."""
    repository = hub_cache(environment) / f"models--{model.replace('/', '--')}"
    reference = repository / "refs" / (revision or "main")
    commit = reference.read_text().strip() if reference.is_file() else revision
    if not commit:
        return None
    snapshot = repository / "snapshots" / commit
    return snapshot if any((snapshot / name).exists() for name in _CONFIGS) else None


def is_offline(environment: Mapping[str, str]) -> bool:
    """Whether the hub must not be asked."""
    values = (environment.get("HF_HUB_OFFLINE", ""), environment.get("TRANSFORMERS_OFFLINE", ""))
    return any(value.upper() in {"1", "ON", "YES", "TRUE"} for value in values)


def _check_folder(folder: Path, *, weights: bool, memory_bytes: int | None) -> None:
    if not folder.is_dir():
        raise EngineStartError(f"there is no model folder {folder}", do="check the path, or give a model's name")
    if not any((folder / name).is_file() for name in _CONFIGS):
        raise EngineStartError(
            "the model folder has no config.json",
            where=str(folder),
            do="give the folder with config.json, tokenizer and weights; download it again if part is gone",
        )
    if not weights:
        return
    files = weight_files(folder)
    if not files:
        raise EngineStartError("the model folder has no weights", where=str(folder), do="download it again")
    _check_present(folder, files)
    for file in files:
        if file.suffix == ".safetensors":
            _check_safetensors(file)
    needed = _loaded_bytes(folder, files)
    if memory_bytes is not None and needed > memory_bytes:
        raise EngineStartError(
            f"too little memory: the weights need {needed / 2**30:.1f} GiB, and beside the KV cache there "
            f"are {memory_bytes / 2**30:.1f} GiB",
            where=str(folder),
            do="take a smaller or quantised model, a smaller --kv-cache-memory-bytes, or more memory",
        )


def weight_files(folder: Path) -> list[Path]:
    """The weight files of a model folder that an engine would read, sorted by name."""
    if shards := set(_shards(folder)):
        return sorted(folder / name for name in shards)
    for pattern in _WEIGHTS:
        if files := sorted(folder.glob(pattern)):
            return files
    return []


def _loaded_bytes(folder: Path, files: list[Path]) -> int:
    """What the weights need once loaded: engines load 32-bit weights as 16-bit."""
    total = sum(file.stat().st_size for file in files)
    config = folder / "config.json"
    try:
        facts = json.loads(config.read_text(encoding="utf-8")) if config.is_file() else {}
    except ValueError as error:
        raise EngineStartError("config.json cannot be read", where=str(folder), do="download it again") from error
    is_wide = isinstance(facts, dict) and "float32" in (facts.get("torch_dtype"), facts.get("dtype"))
    return total // 2 if is_wide else total


def _check_present(folder: Path, files: list[Path]) -> None:
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        shown = ", ".join(missing[:3]) + (", ..." if len(missing) > 3 else "")
        raise EngineStartError(
            f"the model is not complete: {len(missing)} of its weight files missing ({shown})",
            where=str(folder),
            do="download it again",
        )


def _shards(folder: Path) -> Iterator[str]:
    for index in _INDEXES:
        path = folder / index
        if path.is_file():
            try:
                yield from json.loads(path.read_text(encoding="utf-8"))["weight_map"].values()
            except (ValueError, KeyError, AttributeError) as error:
                raise EngineStartError(f"{index} cannot be read", where=str(folder), do="download it again") from error
            return


def _check_safetensors(file: Path) -> None:
    """Raises when `file` is shorter than its own header says: a download cut short, or a Git LFS pointer."""
    size = file.stat().st_size
    try:
        with file.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            header = json.loads(stream.read(length)) if length <= size else {"": {}}
        ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
        whole = 8 + length + max(ends, default=0) <= size
    except (struct.error, ValueError, KeyError, TypeError, AttributeError, IndexError):
        whole = False
    if not whole:
        raise EngineStartError(
            f"the weight file {file.name} is cut short or no safetensors file",
            where=str(file.parent),
            do="download it again (a Git LFS pointer needs `git lfs pull`)",
        )
