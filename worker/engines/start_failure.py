"""Why an engine did not start, or died: what vLLM, its children or the hub raised, as one line with what to do.

Decided by the error's type, never by its text.
"""

import importlib
import json
from pathlib import Path

from common.errors import EngineDeadError, EngineMemoryError, EngineStartError

_PERMANENT = (ValueError, TypeError, ImportError, MemoryError, SystemExit)
"""What the same flags on the same machine will raise again. Everything else may be the moment's: a network
that is away, a GPU not yet free, an engine core that died; the supervisor tries those a few times."""
_OUT_OF_MEMORY = frozenset({"OutOfMemoryError", "MemoryError"})
_TEXT_CHARACTERS = 400
_HUB = (
    ("GatedRepoError", "the model {model} is gated", "ask its owner for access on its page, then set HF_TOKEN", True),
    (
        "RevisionNotFoundError",
        "the model {model} has no such revision on the hub",
        "check --revision, or leave it out",
        True,
    ),
    (
        "RepositoryNotFoundError",
        "there is no model {model} on the hub, or it is private",
        "check the name; for a private model set HF_TOKEN",
        True,
    ),
    (
        "LocalEntryNotFoundError",
        "the model {model} is not whole on this machine, and the rest cannot be fetched from the hub",
        "check the network, HF_ENDPOINT and HF_HUB_OFFLINE, or give the path of a model folder",
        False,
    ),
)
"""Error class of huggingface_hub, what it means, what to do, whether for good; the first that fits."""
_TOKEN_REFUSED = {
    401: ("the hub does not accept the token", "set HF_TOKEN to one that is valid; a public model needs none"),
    403: ("the token may not read the model {model}", "give it read access, or set HF_TOKEN to another"),
}


def start_error(error: BaseException, *, model: str, failure_file: Path | None = None) -> EngineStartError:
    """`error` as an `EngineStartError`; one that is already is returned as it is.

    `failure_file`: where a child of vLLM may have left its own error, which is then the cause.
    """
    if isinstance(error, EngineStartError):
        return error
    for cause in _chain(error):
        if (failure := _hub_failure(cause, model=model)) is not None:
            return failure
    kinds, text = childs_error(failure_file) or ([kind.__name__ for kind in type(error).__mro__], _shorten(str(error)))
    return EngineStartError(
        f"the engine did not start: {kinds[0]}{': ' if text else ''}{text}",
        do="see vLLM's log above for the cause",
        permanent=any(kind.__name__ in kinds for kind in _PERMANENT),
    )


def death_error(failure_file: Path) -> EngineDeadError:
    """Why an engine that was up is gone, as far as its children have left word."""
    kinds, text = childs_error(failure_file) or ([], "")
    if _OUT_OF_MEMORY.isdisjoint(kinds):
        return EngineDeadError("the vLLM engine is gone", do="see its log above; the worker starts a new one")
    return EngineMemoryError(f"the vLLM engine ran out of memory: {text}", do="a smaller --gpu-memory-utilization")


def refuse_flags(message: str) -> None:
    """Raises `EngineStartError` with what vLLM's parser of flags says: in place of its own way, which is to exit."""
    raise EngineStartError(
        f"vLLM does not accept these flags: {_shorten(message)}",
        do="`vllm serve --help=all` lists them",
    )


def _chain(error: BaseException) -> list[BaseException]:
    """`error` and what it was raised from, outermost first."""
    chain: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in chain:
        chain.append(cause)
        cause = cause.__cause__ or cause.__context__
    return chain


def _hub_failure(error: BaseException, *, model: str) -> EngineStartError | None:
    """What `error` means if it is huggingface_hub's; the hub's client comes with the engine."""
    for name, what, do, permanent in _HUB:
        if _is_hub_error(error, name):
            return EngineStartError(what.format(model=model), do=do, permanent=permanent)
    if _is_hub_error(error, "HfHubHTTPError"):
        status = getattr(getattr(error, "response", None), "status_code", None)
        if status in _TOKEN_REFUSED:
            what, do = _TOKEN_REFUSED[status]
            return EngineStartError(what.format(model=model), do=do)
    return None


def _is_hub_error(error: BaseException, name: str) -> bool:
    try:
        kind = getattr(importlib.import_module("huggingface_hub.errors"), name)
    except ImportError:
        return False
    return isinstance(error, kind)


def childs_error(file: Path | None) -> tuple[list[str], str] | None:
    """Kinds, the closest first, and text of the error that a child noted; None where none did."""
    try:
        words = json.loads(file.read_text(encoding="utf-8")) if file is not None else None
    except (OSError, ValueError):
        return None
    return None if words is None else (words["kinds"], _shorten(words["text"]))


def _shorten(text: str) -> str:
    return " ".join(text.split())[:_TEXT_CHARACTERS]
