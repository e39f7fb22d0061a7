"""The token for a model hub, in a file: checked here, read by the engine's hub client alone.

The client itself reads `HF_TOKEN`, else the file that `HF_TOKEN_PATH` names. `HF_TOKEN_FILE` is our other name for
that file, as containers spell it. We never read the token, so it is in no log, no argument and no environment of ours.
"""

from collections.abc import Mapping
from pathlib import Path

from common.secret_file import check_private

FILE_VARIABLE = "HF_TOKEN_FILE"
PATH_VARIABLE = "HF_TOKEN_PATH"


def with_token_file(environment: Mapping[str, str]) -> dict[str, str]:
    """`environment` for an engine, the token's file under the name that the hub's client knows.

    Raises `RefusedError`: the file cannot be read, or everybody can.
    """
    found = dict(environment)
    if file := found.pop(FILE_VARIABLE, ""):
        found[PATH_VARIABLE] = file
    if path := found.get(PATH_VARIABLE):
        check_private(Path(path), what="token of the model hub")
    return found
