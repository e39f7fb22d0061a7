"""Durations as people type them: `90`, `30s`, `10m`, `2h`, `1d`; seconds within."""

import re
from typing import Annotated

from pydantic import BeforeValidator

_UNITS_S = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(\d+(?:\.\d+)?) ?([smhd]?)")


def parse_duration(text: str) -> float:
    """Seconds. Raises `ValueError` for what is no duration."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no duration: give seconds, or 30s, 10m, 2h, 1d")
    return float(found[1]) * _UNITS_S[found[2]]


Seconds = Annotated[float, BeforeValidator(lambda given: parse_duration(given) if isinstance(given, str) else given)]
"""The type of a knob that takes a duration."""
