"""Footprint and headroom of a trial, in bytes; None where it was not sampled."""

from typing import Final

from measures.facts.attempt import TrialFacts
from measures.metrics.formulas import Formulas, scaled

_BYTES_PER_MB: Final = 1e6


def peak_footprint_bytes(trial: TrialFacts) -> int | None:
    """Largest footprint sampled in the trial."""
    return max((sample.footprint_bytes for sample in trial.memory), default=None)


def min_headroom_bytes(trial: TrialFacts) -> int | None:
    """Smallest limit minus footprint; negative past the limit. Samples without a limit do not count."""
    return min(
        (
            sample.limit_bytes - sample.footprint_bytes
            for sample in trial.memory
            if sample.limit_bytes is not None
        ),
        default=None,
    )


def memory_warnings(trial: TrialFacts) -> int:
    """Warnings that the system gave while the trial ran."""
    return trial.memory_warnings


FORMULAS: Final = Formulas(
    trials={
        "peak_footprint_mb": scaled(peak_footprint_bytes, _BYTES_PER_MB),
        "min_headroom_mb": scaled(min_headroom_bytes, _BYTES_PER_MB),
        "memory_warnings": memory_warnings,
    }
)
