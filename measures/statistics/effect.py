"""Directions and log ratios: how a change of a metric becomes a percentage, and when it is for the worse."""

import math
from enum import StrEnum


class Direction(StrEnum):
    """Which way a metric gets better. The words are those of the metric catalogue."""

    LOWER = "lower"
    HIGHER = "higher"

    @property
    def worse_sign(self) -> int:
        """+1 when a greater value is worse, -1 when a smaller one is."""
        return 1 if self is Direction.LOWER else -1


def percent_of_log_ratio(log_ratio: float) -> float:
    """Change in per cent of the baseline, from ln(candidate / baseline); inf past the floats."""
    try:
        return 100.0 * math.expm1(log_ratio)
    except OverflowError:
        return math.inf


def worsening_percent(log_size: float, direction: Direction) -> float:
    """Size in per cent of a change for the worse of `log_size` >= 0, as a positive number.

    The same log ratio is a larger percentage upwards (latency) than downwards (throughput): ln 2 is
    100 % more time but 50 % fewer tokens per second.
    """
    return abs(percent_of_log_ratio(direction.worse_sign * log_size))
