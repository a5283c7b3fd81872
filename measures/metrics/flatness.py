"""The flat-memory check of a soak: does the footprint still rise once the first rounds are over?

The slope is Theil and Sen's, the median over all pairs of samples: one spike or late step moves it little.
Source: Sen, Estimates of the regression coefficient based on Kendall's tau, JASA 63 (1968).
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from contract.events import MemorySampled
from measures.facts.attempt import TrialFacts

SETTLING_PART = 0.1
"""Of a trial: pools fill and caches warm up in it, so it is left out."""
MAX_SAMPLES = 200
MIN_SAMPLES = 10
FLAT_PERCENT = 1.0
"""Growth over the whole rest of the trial that still counts as flat, of the median footprint."""
_NS_PER_MINUTE = 60e9
_BYTES_PER_MB = 1e6


@dataclass(frozen=True, slots=True)
class Flatness:
    """Slope after settling in MB (10^6 bytes) a minute, growth over that time, and the median footprint."""

    minutes: float
    slope_mb_per_minute: float
    median_mb: float

    @property
    def growth_percent(self) -> float:
        """Growth over the time looked at, in percent of the median footprint; negative when it falls."""
        return 100.0 * self.slope_mb_per_minute * self.minutes / self.median_mb

    @property
    def is_flat(self) -> bool:
        """It may fall; it may not rise by more than FLAT_PERCENT."""
        return self.growth_percent <= FLAT_PERCENT

    def __str__(self) -> str:
        word = "Memory is flat" if self.is_flat else "Memory grows: something is kept that should be let go"
        return (
            f"{word} ({self.slope_mb_per_minute:+.3f} MB a minute over {self.minutes:.1f} min, "
            f"{self.growth_percent:+.2f} % of {self.median_mb:.0f} MB)."
        )


def flatness_of(trial: TrialFacts) -> Flatness | None:
    """Flatness of a completed trial's footprint; None when it was sampled too seldom, or as nothing."""
    settled = _settled(trial)
    if len(settled) < MIN_SAMPLES or settled[-1].t_mono_ns == settled[0].t_mono_ns:
        return None
    median_bytes = statistics.median(sample.footprint_bytes for sample in settled)
    if not median_bytes:
        return None
    span_ns = settled[-1].t_mono_ns - settled[0].t_mono_ns
    return Flatness(
        minutes=span_ns / _NS_PER_MINUTE,
        slope_mb_per_minute=_slope(settled) * _NS_PER_MINUTE / _BYTES_PER_MB,
        median_mb=median_bytes / _BYTES_PER_MB,
    )


def _settled(trial: TrialFacts) -> Sequence[MemorySampled]:
    """At most MAX_SAMPLES, evenly chosen, from after the settling."""
    if not trial.completed or trial.finished_ns is None:
        return ()
    begin_ns = trial.started_ns + SETTLING_PART * (trial.finished_ns - trial.started_ns)
    later = [sample for sample in trial.memory if sample.t_mono_ns >= begin_ns]
    step = -(-len(later) // MAX_SAMPLES) or 1
    return later[::step]


def _slope(samples: Sequence[MemorySampled]) -> float:
    """Bytes a nanosecond; there must be two different times."""
    return statistics.median(
        (after.footprint_bytes - before.footprint_bytes) / (after.t_mono_ns - before.t_mono_ns)
        for before, after in combinations(samples, 2)
        if after.t_mono_ns > before.t_mono_ns
    )
