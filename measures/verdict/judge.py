"""The verdict on one metric of one device: regressed, improved, the same, a small change, or not known.

A comparison too weak to see the floor cannot say "same".
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from contract.bounds import ALPHA_BELOW, FLOOR_PERCENT_BELOW, MIN_ALPHA
from measures.errors import AnalysisInputError
from measures.statistics.effect import Direction, percent_of_log_ratio, worsening_percent
from measures.statistics.hodges_lehmann import estimate, interval
from measures.statistics.mde import minimum_detectable_log
from measures.statistics.sign_flip import sign_flip_p
from measures.verdict.pairs import Drops, Pair, drops_of, log_ratios
from measures.wording import change


class VerdictWord(StrEnum):
    """The words a verdict may use. NO_DATA means that not one pair could be used."""

    IMPROVED = "improved"
    REGRESSED = "regressed"
    SAME = "same"
    SMALL_CHANGE = "small_change"
    INCONCLUSIVE = "inconclusive"
    NO_DATA = "no_data"


class Alternative(StrEnum):
    """The one-sided claim that a p-value speaks of."""

    WORSE = "worse"
    BETTER = "better"


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What a judgement takes for granted.

    `noise_log_sd`: SD of the pairs' log ratio in A/A runs of the same device and metric; without it, that of
    the judged pairs. `seed` matters above 20 pairs only.
    """

    noise_log_sd: float | None = None
    confidence: float = 0.95
    power: float = 0.80
    seed: int = 0


DEFAULT_ASSUMPTIONS = Assumptions()


@dataclass(frozen=True, slots=True)
class Verdict:
    """A verdict and all it rests on. Percentages are of the baseline; + means the candidate is greater.

    `statistic_percent` is the Hodges-Lehmann estimate of the change and `interval_percent` its interval, with
    the coverage it really has (both None for one pair, whose range is a point and holds nothing). `p_value`
    is the one-sided sign-flip p of the alternative "the change is for the worse" when the estimate points
    that way or nowhere, of "for the better" when it points there; `alternative` says which. The interval is
    two-sided, the p one-sided: a claim at 0.05 may stand beside a 95 % interval that touches 0.
    `mde_percent`: smallest worsening that these pairs would have found; None where there are fewer than two
    pairs or the noise is past all measure. All six are None where no pair was used. Every number is finite.
    """

    verdict: VerdictWord
    reason: str
    direction: Direction
    floor_percent: float
    alpha: float
    pairs_used: int
    pairs_dropped: int
    drops: Drops
    statistic_percent: float | None = None
    interval_percent: tuple[float, float] | None = None
    interval_confidence: float | None = None
    p_value: float | None = None
    alternative: Alternative | None = None
    mde_percent: float | None = None


@dataclass(frozen=True, slots=True)
class _Evidence:
    """The numbers of one comparison, before anything is concluded from them."""

    statistic_percent: float
    interval_percent: tuple[float, float]
    interval_confidence: float
    p_value: float
    alternative: Alternative
    mde_percent: float | None


def judge(
    pairs: Sequence[Pair],
    direction: Direction,
    floor_percent: float,
    alpha: float,
    assumptions: Assumptions = DEFAULT_ASSUMPTIONS,
) -> Verdict:
    """Verdict on the change from baseline to candidate. Each pair is one measurement of both arms.

    `floor_percent` is the greatest change of the printed percentage that nobody minds; `alpha` the level of
    each of the two one-sided claims (regressed, improved): of two equal builds, at most this share is called
    regressed. A look of a sequential plan passes its own alpha (looks.py). AnalysisInputError for impossible
    thresholds, more than MAX_PAIRS pairs or a pair id that comes twice.
    """
    _check_thresholds(floor_percent, alpha, assumptions)
    ratios = log_ratios(pairs)
    drops = drops_of(pairs)
    evidence = _weigh(ratios, direction, alpha, assumptions) if ratios.size else None
    if evidence is None:
        word, reason = VerdictWord.NO_DATA, _why_no_pair(pairs)
    else:
        word, reason = _conclude(
            evidence, _Bar(floor_percent, alpha, assumptions.confidence), int(ratios.size)
        )
    if drops.unequal:
        word, reason = _doubt_unequal_drops(word, reason, drops)
    verdict = Verdict(
        verdict=word,
        reason=reason,
        direction=direction,
        floor_percent=floor_percent,
        alpha=alpha,
        pairs_used=int(ratios.size),
        pairs_dropped=drops.pairs,
        drops=drops,
    )
    if evidence is None:
        return verdict
    return replace(
        verdict,
        statistic_percent=evidence.statistic_percent,
        interval_percent=evidence.interval_percent if evidence.interval_confidence else None,
        interval_confidence=evidence.interval_confidence or None,
        p_value=evidence.p_value,
        alternative=evidence.alternative,
        mde_percent=evidence.mde_percent,
    )


@dataclass(frozen=True, slots=True)
class _Bar:
    """What the evidence is held against."""

    floor_percent: float
    alpha: float
    confidence: float


def _check_thresholds(floor_percent: float, alpha: float, assumptions: Assumptions) -> None:
    if not 0 <= floor_percent < FLOOR_PERCENT_BELOW:
        raise AnalysisInputError(f"floor_percent: {floor_percent} is not in [0, {FLOOR_PERCENT_BELOW:g})")
    if not MIN_ALPHA <= alpha < ALPHA_BELOW:
        raise AnalysisInputError(f"alpha: {alpha} is not in [{MIN_ALPHA:g}, {ALPHA_BELOW:g})")
    if not alpha < assumptions.power < 1:
        raise AnalysisInputError(f"power: {assumptions.power} is not between alpha and 1")
    noise = assumptions.noise_log_sd
    if noise is not None and not (math.isfinite(noise) and noise >= 0):
        raise AnalysisInputError(f"noise_log_sd: {noise} is not a standard deviation")


def _weigh(
    ratios: NDArray[np.float64], direction: Direction, alpha: float, assumptions: Assumptions
) -> _Evidence:
    centre = estimate(ratios)
    bounds = interval(ratios, assumptions.confidence)
    sign = direction.worse_sign
    for_the_worse = centre * sign >= 0
    return _Evidence(
        statistic_percent=percent_of_log_ratio(centre),
        interval_percent=(percent_of_log_ratio(bounds.low), percent_of_log_ratio(bounds.high)),
        interval_confidence=bounds.confidence,
        p_value=sign_flip_p(ratios * (sign if for_the_worse else -sign), assumptions.seed),
        alternative=Alternative.WORSE if for_the_worse else Alternative.BETTER,
        mde_percent=_mde_percent(ratios, direction, alpha, assumptions),
    )


def _mde_percent(
    ratios: NDArray[np.float64], direction: Direction, alpha: float, assumptions: Assumptions
) -> float | None:
    if ratios.size < 2:
        return None
    own = float(np.std(ratios, ddof=1))
    noise = own if assumptions.noise_log_sd is None else assumptions.noise_log_sd
    detectable = minimum_detectable_log(noise, int(ratios.size), alpha, assumptions.power)
    percent = worsening_percent(detectable, direction)
    return percent if math.isfinite(percent) else None


def _why_no_pair(pairs: Sequence[Pair]) -> str:
    reasons = Counter(pair.dropped_reason for pair in pairs)
    if not reasons:
        return "no pair was measured"
    (reason, times), *_ = reasons.most_common(1)
    return f"no pair could be used; {times} of {len(pairs)}: {reason}"


def _conclude(evidence: _Evidence, bar: _Bar, used: int) -> tuple[VerdictWord, str]:
    shown = change(evidence.statistic_percent, digits=2)
    claim = f"{shown} over the pairs, {evidence.alternative}, p {evidence.p_value:.4g} at {bar.alpha:g}"
    floor = f"floor {bar.floor_percent:g} %"
    if evidence.p_value <= bar.alpha:
        if abs(evidence.statistic_percent) <= bar.floor_percent:
            return VerdictWord.SMALL_CHANGE, f"{claim}, but within the {floor}"
        worse = evidence.alternative is Alternative.WORSE
        return (VerdictWord.REGRESSED if worse else VerdictWord.IMPROVED), f"{claim}, beyond the {floor}"
    obstacle = _obstacle_to_same(evidence, bar)
    if obstacle is None:
        low, high = evidence.interval_percent
        return VerdictWord.SAME, (
            f"the interval {change(low, 2)} to {change(high, 2)} lies within the {floor}; "
            f"a worsening of {evidence.mde_percent:.2f} % would have been seen"
        )
    if 2.0**-used > bar.alpha:
        obstacle += f"; {used} pairs cannot reach level {bar.alpha:g}, their smallest p is {2.0**-used:.4g}"
    return VerdictWord.INCONCLUSIVE, f"{claim} is not established, and {obstacle}"


def _obstacle_to_same(evidence: _Evidence, bar: _Bar) -> str | None:
    """Why "same" may not be said, or None when it may."""
    if evidence.interval_confidence == 0:
        return "one pair has no interval"
    low, high = evidence.interval_percent
    if low < -bar.floor_percent or high > bar.floor_percent:
        interval = f"{change(low, 2)} to {change(high, 2)}"
        return f"the interval {interval} reaches beyond the floor {bar.floor_percent:g} %"
    if evidence.mde_percent is None or evidence.mde_percent > bar.floor_percent:
        seen = "nothing" if evidence.mde_percent is None else f"only {evidence.mde_percent:.2f} % or more"
        return f"{seen} could have been seen, the floor is {bar.floor_percent:g} %"
    if evidence.interval_confidence < bar.confidence:
        return f"so few pairs give a {evidence.interval_confidence:.1%} interval, not {bar.confidence:.1%}"
    return None


def _doubt_unequal_drops(word: VerdictWord, reason: str, drops: Drops) -> tuple[VerdictWord, str]:
    """An arm that spoils its own trials has selected the rest: no pass can be given on what is left."""
    note = (
        f"pairs dropped unequally: {drops.baseline} on account of the baseline, {drops.candidate} of the "
        f"candidate, of {drops.planned} (Fisher p {drops.p_value:.3g})"
    )
    if word in (VerdictWord.REGRESSED, VerdictWord.NO_DATA):
        return word, f"{reason}; {note}"
    return VerdictWord.INCONCLUSIVE, f"{note}; without that it would be {word}: {reason}"
