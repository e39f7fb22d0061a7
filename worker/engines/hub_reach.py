"""Whether the model hub can be reached, asked once before the engine starts: its client would ask for minutes.

With the model on this machine and no network an engine then starts at once, from what is here.
"""

import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping, MutableMapping, Sequence

from common.errors import EngineStartError
from worker.engines.model_check import cached_snapshot, is_offline, is_path

DEFAULT_ENDPOINT = "https://huggingface.co"
TRY_S = 5.0
_TRIES = 2


def settle_offline(model: str, *, revision: str | None, environment: MutableMapping[str, str]) -> bool:
    """Forbid the hub's client to ask, in `environment`, when nobody would answer; True if so. Blocks up to 10 s.

    Before the client is imported, which reads it then. Raises `EngineStartError`, not for good, when the model is not
    on this machine either.
    """
    if is_path(model) or is_offline(environment) or _answers(environment):
        return False
    if cached_snapshot(model, revision, environment=environment) is None:
        raise EngineStartError(
            f"the model {model} is not on this machine, and the hub does not answer",
            where=endpoint_of(environment),
            do="check the network, its proxy and HF_ENDPOINT, or give the path of a model folder",
            permanent=False,
        )
    environment["HF_HUB_OFFLINE"] = "1"
    return True


def revision_of(flags: Sequence[str]) -> str | None:
    """The value of `--revision` among vLLM's flags."""
    for position, flag in enumerate(flags):
        name, _, value = flag.partition("=")
        if name == "--revision":
            return value or next(iter(flags[position + 1 :]), None)
    return None


def endpoint_of(environment: Mapping[str, str]) -> str:
    """Where the hub is."""
    return environment.get("HF_ENDPOINT") or DEFAULT_ENDPOINT


def _answers(environment: Mapping[str, str]) -> bool:
    """Whether anything answers there, whatever it says."""
    request = urllib.request.Request(endpoint_of(environment), method="HEAD")
    for _ in range(_TRIES):
        try:
            with urllib.request.urlopen(request, timeout=TRY_S):
                return True
        except urllib.error.HTTPError:
            return True
        except OSError as error:
            if isinstance(getattr(error, "reason", None), ssl.SSLError):
                return True  # somebody is there; the client may have other certificates
    return False
