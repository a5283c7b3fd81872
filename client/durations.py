"""Durations as people write them: 90s, 30m, 2h, 7d."""

import re
from typing import Final

from client.errors import UsageError

_UNIT_S: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_DURATION: Final = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)([smhd])")


def duration_s(text: str, option: str) -> float:
    """Seconds; UsageError, naming the option, for anything else than a number above 0 and a unit."""
    found = _DURATION.fullmatch(text.strip())
    seconds = float(found[1]) * _UNIT_S[found[2]] if found else 0.0
    if seconds <= 0:
        raise UsageError("bad-option", f"{option} {text!r} is not a duration", "write 90s, 30m, 2h or 7d")
    return seconds
