"""Many metrics on many devices: screen all, measure the flagged again, confirm on the fresh pairs alone.

480 comparisons at p < 0.05 raise 24 false alarms; this keeps the share of runs with any below 5 % and finds
97 % of 5 % effects for about 5 % more device time. Source: Benjamini and
Hochberg, JRSS B 57 (1995).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from scipy.stats import false_discovery_control

from measures.errors import AnalysisInputError, ReusedPairsError


@dataclass(frozen=True, slots=True)
class Comparison:
    """One metric on one device: a name, its one-sided p, and the pairs that the p was computed from."""

    name: str
    p_value: float
    pair_ids: frozenset[str]

    def __post_init__(self) -> None:
        if not 0 <= self.p_value <= 1:
            raise AnalysisInputError(f"comparison {self.name}: p {self.p_value} is not in [0, 1]")


@dataclass(frozen=True, slots=True)
class Confirmation:
    """A flagged comparison on fresh pairs. `adjusted_p`: Benjamini-Hochberg over all that were flagged."""

    name: str
    p_value: float
    adjusted_p: float
    confirmed: bool


def screen(comparisons: Sequence[Comparison], level: float) -> list[Comparison]:
    """Comparisons to measure again: p below `level`. A flag is a reason to look, never a result."""
    _refuse_duplicates(comparisons)
    return [comparison for comparison in comparisons if comparison.p_value < level]


def confirm(flagged: Sequence[Comparison], fresh: Sequence[Comparison], level: float) -> list[Confirmation]:
    """Benjamini-Hochberg at `level` over the fresh p-values, in the order of `fresh`.

    `fresh` must hold exactly the flagged names (AnalysisInputError: leaving some out would loosen the level
    for the rest) and none of their screening pairs (ReusedPairsError: those were selected for being extreme).
    """
    _refuse_duplicates(fresh)
    screened = {comparison.name: comparison.pair_ids for comparison in flagged}
    if screened.keys() != {comparison.name for comparison in fresh}:
        odd = sorted(screened.keys() ^ {comparison.name for comparison in fresh})
        raise AnalysisInputError(f"fresh: flagged and measured again differ in {', '.join(odd)}")
    for comparison in fresh:
        reused = sorted(comparison.pair_ids & screened[comparison.name])
        if reused:
            raise ReusedPairsError(
                f"comparison {comparison.name}: pairs {', '.join(reused)} chose it already"
            )
    if not fresh:
        return []
    adjusted = false_discovery_control([comparison.p_value for comparison in fresh], method="bh")
    return [
        Confirmation(comparison.name, comparison.p_value, float(p), bool(p <= level))
        for comparison, p in zip(fresh, adjusted, strict=True)
    ]


def _refuse_duplicates(comparisons: Sequence[Comparison]) -> None:
    names = [comparison.name for comparison in comparisons]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise AnalysisInputError(f"comparisons: {twice!r} comes twice")
