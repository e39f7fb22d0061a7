"""Why an engine did not start: what vLLM or the hub raised, as one line with what to do.

Decided by the error's type, never by its text.
"""

import importlib

from common.errors import EngineStartError

_PERMANENT = (ValueError, TypeError, ImportError, MemoryError, SystemExit)
"""What the same flags on the same machine will raise again. Everything else may be the moment's: a network
that is away, a GPU not yet free, an engine core that died; the supervisor tries those a few times."""
_TEXT_CHARACTERS = 400


def start_error(error: BaseException, *, model: str) -> EngineStartError:
    """`error` as an `EngineStartError`; one that is already is returned as it is."""
    if isinstance(error, EngineStartError):
        return error
    for cause in _chain(error):
        if _is_hub_error(cause, "GatedRepoError"):
            return EngineStartError(
                f"the model {model} is gated",
                do="ask its owner for access on its page, then set HF_TOKEN to a token that may read it",
            )
        if _is_hub_error(cause, "RepositoryNotFoundError"):
            return EngineStartError(
                f"there is no model {model} on the hub, or it is private",
                do="check the name; for a private model set HF_TOKEN",
            )
    if isinstance(error, SystemExit):
        return EngineStartError("vLLM does not accept these flags", do="see its message above")
    text = " ".join(str(error).split())[:_TEXT_CHARACTERS]
    return EngineStartError(
        f"the engine did not start: {type(error).__name__}{': ' if text else ''}{text}",
        do="see vLLM's log above for the cause",
        permanent=isinstance(error, _PERMANENT),
    )


def _chain(error: BaseException) -> list[BaseException]:
    """`error` and what it was raised from, outermost first."""
    chain: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in chain:
        chain.append(cause)
        cause = cause.__cause__ or cause.__context__
    return chain


def _is_hub_error(error: BaseException, name: str) -> bool:
    """Whether `error` is huggingface_hub's error class `name`; the hub's client comes with the engine."""
    try:
        kind = getattr(importlib.import_module("huggingface_hub.errors"), name)
    except ImportError:
        return False
    return isinstance(error, kind)
