"""The three clocks of a machine, read in one place."""

import sys
import time
from datetime import UTC, datetime


def monotonic_ns() -> int:
    """CLOCK_MONOTONIC: the same in every process of this boot; stands still while the machine sleeps."""
    return time.monotonic_ns()


def continuous_ns() -> int:
    """Like monotonic_ns, but goes on while the machine sleeps; their difference grows by the time slept.

    A wall clock would do the same until somebody sets it, so it is only what remains elsewhere.
    """
    if sys.platform == "linux":
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    if sys.platform == "darwin":
        # On Darwin CLOCK_MONOTONIC counts sleep, time.monotonic() does not.
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    return time.time_ns()


def wall() -> datetime:
    """Now, in UTC: for display and for skew, never for a deadline."""
    return datetime.now(UTC)


def seconds_ns(seconds: float) -> int:
    """Seconds as whole nanoseconds."""
    return round(seconds * 1_000_000_000)
