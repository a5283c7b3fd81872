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


class DecisionClock:
    """One reading for each decision: its time, and the longest gap before a decision since `begin`.

    Time and gap come from the same reading. From two, a process that was stopped between them would see a
    deadline passed and no gap, and take its own sleep for a network that failed.
    """

    def __init__(self) -> None:
        self.now_ns = monotonic_ns()
        self.gap_ns = 0
        self.slept_ns = 0
        self._continuous_ns = continuous_ns()

    def begin(self) -> None:
        """Decisions from here on follow from one another."""
        self.gap_ns = self.slept_ns = 0

    def read(self) -> None:
        """A decision is made now."""
        before_ns, continuous_before_ns = self.now_ns, self._continuous_ns
        self.now_ns, self._continuous_ns = monotonic_ns(), continuous_ns()
        passed_ns = self.now_ns - before_ns
        self.gap_ns = max(self.gap_ns, passed_ns)
        self.slept_ns = max(self.slept_ns, self._continuous_ns - continuous_before_ns - passed_ns)
