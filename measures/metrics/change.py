"""One value against another: the change in per cent of the baseline, and what a shorter time comes to."""

from typing import Final

from measures.errors import AnalysisInputError

MAX_PERCENT: Final = 1000.0
"""A greater percentage says no more than that the baseline is next to nothing."""


def change_percent(baseline: float, candidate: float) -> float | None:
    """(candidate - baseline) / baseline x 100; None where the baseline is 0 or next to nothing beside it."""
    if abs(candidate - baseline) > abs(baseline) * MAX_PERCENT / 100.0 or baseline == 0:
        return None
    return (candidate - baseline) / abs(baseline) * 100.0


def reduction_percent(baseline: float, candidate: float) -> float:
    """(baseline - candidate) / baseline x 100, of a time. Negative when the candidate takes longer."""
    _check_positive(baseline, candidate)
    return (baseline - candidate) / baseline * 100.0


def speedup(baseline: float, candidate: float) -> float:
    """baseline / candidate, of a time: 60 % less time is 2.5 times as fast. Below 1 when it takes longer."""
    _check_positive(baseline, candidate)
    return baseline / candidate


def _check_positive(baseline: float, candidate: float) -> None:
    if not (0 < baseline < float("inf") and 0 < candidate < float("inf")):
        raise AnalysisInputError(f"baseline {baseline} and candidate {candidate} must be positive and finite")
