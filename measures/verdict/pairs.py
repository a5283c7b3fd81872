"""Pairs of trials, one of each arm, measured next to each other; what was dropped and whose fault it was."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray
from scipy.stats import fisher_exact

from contract.bounds import MAX_PAIRS
from measures.errors import AnalysisInputError, PairValueError

UNEQUAL_DROPS_LEVEL = 0.05
# Two arms that differ by more than this were not measured in the same unit.
MAX_RATIO = 1e9


def are_comparable(*values: float | None) -> bool:
    """Whether positive values lie within MAX_RATIO of each other; None is none."""
    kept = [math.log(value) for value in values if value is not None]
    return max(kept, default=0.0) - min(kept, default=0.0) <= math.log(MAX_RATIO)


class PairArm(StrEnum):
    """The two sides of a pair, whatever the arms of the run are called."""

    BASELINE = "baseline"
    CANDIDATE = "candidate"


@dataclass(frozen=True, slots=True)
class Pair:
    """One value of each arm, both in the metric's unit; or a pair that was dropped, with the reason.

    Kept: both values positive and finite. Dropped: `dropped_reason` says why, `dropped_arms` which arm was at
    fault (above nominal, killed, lost), and a value may be missing. Anything else raises PairValueError.
    """

    pair_id: str
    baseline: float | None
    candidate: float | None
    dropped_reason: str | None = None
    dropped_arms: frozenset[PairArm] = frozenset()

    def __post_init__(self) -> None:
        if self.dropped_reason is None:
            self._check_kept()
        elif not self.dropped_reason or not self.dropped_arms:
            raise PairValueError(
                f"pair {self.pair_id}: a dropped pair needs a reason and the arm or arms that caused it"
            )

    def _check_kept(self) -> None:
        if self.dropped_arms:
            raise PairValueError(f"pair {self.pair_id}: an arm is blamed but no reason is given")
        for arm, value in ((PairArm.BASELINE, self.baseline), (PairArm.CANDIDATE, self.candidate)):
            if value is None:
                raise PairValueError(f"pair {self.pair_id}: {arm} has no value; drop the pair, with a reason")
            if not math.isfinite(value) or value <= 0:
                raise PairValueError(
                    f"pair {self.pair_id}: {arm} is {value}; a log ratio needs positive finite values"
                )
        if not are_comparable(self.baseline, self.candidate):
            raise PairValueError(
                f"pair {self.pair_id}: {self.baseline} and {self.candidate} are not in the same unit"
            )

    @property
    def log_ratio(self) -> float:
        """ln(candidate / baseline). PairValueError for a dropped pair."""
        if self.dropped_reason is not None or self.baseline is None or self.candidate is None:
            raise PairValueError(f"pair {self.pair_id}: dropped ({self.dropped_reason}), it has no ratio")
        return math.log(self.candidate) - math.log(self.baseline)


@dataclass(frozen=True, slots=True)
class Drops:
    """How many of `planned` pairs were dropped, and on account of which arm.

    A pair that both arms spoiled counts once in `pairs` and once for each arm.
    """

    planned: int
    pairs: int
    baseline: int
    candidate: int

    @property
    def p_value(self) -> float:
        """One-sided Fisher p that the arm dropped more often is so only by chance; 1 when they are equal.

        The side is that of the worse arm: 4 of 10 against 0 of 10 gives 0.043.
        """
        more, fewer = max(self.baseline, self.candidate), min(self.baseline, self.candidate)
        if more == fewer:
            return 1.0
        table = [[more, self.planned - more], [fewer, self.planned - fewer]]
        return float(fisher_exact(table, alternative="greater").pvalue)

    @property
    def unequal(self) -> bool:
        """One arm spoils pairs more often: the pairs that are left are selected, and that is a finding."""
        return self.p_value < UNEQUAL_DROPS_LEVEL


def drops_of(pairs: Sequence[Pair]) -> Drops:
    """Drops, counted per arm."""
    dropped = [pair for pair in pairs if pair.dropped_reason is not None]
    return Drops(
        planned=len(pairs),
        pairs=len(dropped),
        baseline=sum(PairArm.BASELINE in pair.dropped_arms for pair in dropped),
        candidate=sum(PairArm.CANDIDATE in pair.dropped_arms for pair in dropped),
    )


def log_ratios(pairs: Sequence[Pair]) -> NDArray[np.float64]:
    """ln(candidate / baseline) of the pairs that were kept, in their order.

    AnalysisInputError when a pair id comes twice (one measurement would count as two) or for more than
    MAX_PAIRS: Walsh averages and the exact null grow with the square and the cube of their number.
    """
    ids = [pair.pair_id for pair in pairs]
    if len(set(ids)) != len(ids):
        twice = next(pair_id for pair_id in ids if ids.count(pair_id) > 1)
        raise AnalysisInputError(f"pairs: {twice!r} comes twice")
    if len(ids) > MAX_PAIRS:
        raise AnalysisInputError(f"pairs: {len(ids)} given, at most {MAX_PAIRS} can be judged")
    return np.array([pair.log_ratio for pair in pairs if pair.dropped_reason is None], dtype=np.float64)
