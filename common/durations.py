"""Durations as people type them: `90`, `30s`, `10m`, `2h`, `1d`; seconds within."""

import re
from typing import Annotated

from pydantic import BeforeValidator

_UNITS_S = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(\d+(?:\.\d+)?) ?([smhd]?)")


def parse_duration(given: object) -> object:
    """Seconds, where `given` is text that names a duration; all else as it is. Raises `ValueError` for other text."""
    if not isinstance(given, str):
        return given
    found = _DURATION.fullmatch(given.strip())
    if found is None:
        raise ValueError(f"{given!r} is no duration: give seconds, or 30s, 10m, 2h, 1d")
    return float(found[1]) * _UNITS_S[found[2]]


Seconds = Annotated[float, BeforeValidator(parse_duration)]
"""The type of a knob that takes a duration."""
