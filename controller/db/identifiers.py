"""New ids: a prefix and a ULID, so that ids sort by the time of their making."""

from datetime import datetime
from random import Random
from typing import Literal

from ulid import ULID

Prefix = Literal["run", "job", "att", "lea", "agt"]


def new_id(prefix: Prefix, now: datetime, chance: Random) -> str:
    """Such as `job_01J…`: 48 bits of milliseconds and 80 bits of chance (SystemRandom in production)."""
    milliseconds = int(now.timestamp() * 1000)
    return f"{prefix}_{ULID.from_bytes(milliseconds.to_bytes(6, 'big') + chance.randbytes(10))}"
