"""The verdict: its rules one by one, and what must hold whatever the numbers."""

import math
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from measures.errors import AnalysisInputError
from measures.statistics.effect import Direction
from measures.verdict.judge import Alternative, Assumptions, Verdict, VerdictWord, judge
from measures.verdict.pairs import Pair, PairArm

W = VerdictWord
CANDIDATE = frozenset({PairArm.CANDIDATE})


def _pairs(ratios: list[float], scale: float = 1.0) -> list[Pair]:
    return [Pair(f"p{i}", 100.0 * scale, 100.0 * scale * ratio) for i, ratio in enumerate(ratios)]


def _noisy(count: int, percent: float, log_sd: float, seed: int = 1) -> list[float]:
    """Ratios whose log has mean and SD of exactly what is asked."""
    noise = np.random.default_rng(seed).normal(size=count)
    noise = (noise - noise.mean()) / noise.std(ddof=1) * log_sd
    return [float(ratio) for ratio in np.exp(noise + math.log1p(percent / 100))]


def _spoiled(count: int) -> list[Pair]:
    return [Pair(f"d{i}", 100.0, None, "thermal state serious", CANDIDATE) for i in range(count)]


@pytest.mark.parametrize(
    ("percent", "direction", "word"),
    [
        (+10.0, Direction.LOWER, W.REGRESSED),
        (-10.0, Direction.LOWER, W.IMPROVED),
        (+10.0, Direction.HIGHER, W.IMPROVED),
        (-10.0, Direction.HIGHER, W.REGRESSED),
    ],
)
def test_a_clear_change_is_called_by_the_metrics_direction(
    percent: float, direction: Direction, word: VerdictWord
) -> None:
    verdict = judge(_pairs(_noisy(10, percent, 0.02)), direction, floor_percent=5.0, alpha=0.05)
    assert verdict.verdict is word
    assert verdict.statistic_percent == pytest.approx(percent, abs=2.0)
    assert verdict.p_value == 2.0**-10
    assert verdict.alternative is (Alternative.WORSE if word is W.REGRESSED else Alternative.BETTER)


def test_a_significant_effect_within_the_floor_is_a_small_change_not_a_regression() -> None:
    verdict = judge(_pairs(_noisy(10, 1.0, 0.005)), Direction.LOWER, floor_percent=2.0, alpha=0.05)
    assert verdict.verdict is W.SMALL_CHANGE
    assert verdict.p_value is not None
    assert verdict.p_value <= 0.05


def test_the_estimate_must_exceed_the_floor_not_only_reach_it() -> None:
    exactly = _pairs([1.25] * 10)
    floor = judge(exactly, Direction.LOWER, floor_percent=1.0, alpha=0.05).statistic_percent
    assert floor is not None
    assert judge(exactly, Direction.LOWER, floor, alpha=0.05).verdict is W.SMALL_CHANGE
    assert judge(exactly, Direction.LOWER, floor - 1e-6, alpha=0.05).verdict is W.REGRESSED


def test_an_interval_within_the_floor_from_a_strong_comparison_is_the_same() -> None:
    verdict = judge(_pairs(_noisy(10, 0.0, 0.01)), Direction.LOWER, floor_percent=2.0, alpha=0.05)
    assert verdict.verdict is W.SAME
    assert verdict.mde_percent is not None
    assert verdict.mde_percent < 2.0


def test_a_comparison_that_could_not_have_seen_the_floor_is_never_the_same() -> None:
    quiet = _pairs(_noisy(10, 0.0, 0.01))
    loud_device = Assumptions(noise_log_sd=0.05)
    verdict = judge(quiet, Direction.HIGHER, 2.0, 0.05, loud_device)
    assert verdict.verdict is W.INCONCLUSIVE
    assert verdict.mde_percent == pytest.approx(4.2, abs=0.05)
    assert "could have been seen" in verdict.reason


def test_without_a_a_runs_the_pairs_own_spread_gives_the_published_detectable_effect() -> None:
    verdict = judge(_pairs(_noisy(10, 0.0, 0.03)), Direction.HIGHER, 5.0, 0.05)
    assert verdict.mde_percent is not None
    assert round(verdict.mde_percent, 2) == 2.53


def test_an_interval_that_reaches_beyond_the_floor_is_inconclusive() -> None:
    verdict = judge(_pairs(_noisy(10, 0.0, 0.10)), Direction.LOWER, floor_percent=2.0, alpha=0.05)
    assert verdict.verdict is W.INCONCLUSIVE
    assert "reaches beyond the floor" in verdict.reason


def test_equal_counts_that_never_vary_are_the_same() -> None:
    verdict = judge(_pairs([1.0] * 8), Direction.LOWER, floor_percent=0.0, alpha=0.05)
    assert (verdict.verdict, verdict.statistic_percent, verdict.mde_percent) == (W.SAME, 0.0, 0.0)
    assert verdict.p_value == 1.0


def test_five_pairs_can_claim_at_five_percent_but_cannot_say_same() -> None:
    assert judge(_pairs([0.4] * 5), Direction.LOWER, 5.0, 0.05).verdict is W.IMPROVED
    verdict = judge(_pairs([1.0] * 5), Direction.LOWER, 5.0, 0.05)
    assert verdict.verdict is W.INCONCLUSIVE
    assert verdict.interval_confidence == 0.9375


def test_four_pairs_cannot_claim_at_five_percent_and_the_reason_says_so() -> None:
    verdict = judge(_pairs([2.0, 2.1, 1.9, 2.0]), Direction.LOWER, 5.0, 0.05)
    assert verdict.verdict is W.INCONCLUSIVE
    assert "4 pairs cannot reach level 0.05, their smallest p is 0.0625" in verdict.reason


def test_one_pair_is_inconclusive_and_has_no_detectable_effect() -> None:
    verdict = judge(_pairs([3.0]), Direction.LOWER, 5.0, 0.05)
    assert (verdict.verdict, verdict.mde_percent) == (W.INCONCLUSIVE, None)


def test_one_pair_has_no_interval_and_two_say_that_theirs_holds_half_the_time() -> None:
    one = judge(_pairs([0.75]), Direction.LOWER, 5.0, 0.05)
    assert (one.interval_percent, one.interval_confidence) == (None, None)
    assert "one pair has no interval" in one.reason
    two = judge(_pairs([0.75, 0.8]), Direction.LOWER, 5.0, 0.05)
    assert two.interval_percent == pytest.approx((-25.0, -20.0))
    assert two.interval_confidence == 0.5


def test_no_usable_pair_is_no_data_and_has_no_numbers() -> None:
    verdict = judge(_spoiled(3), Direction.LOWER, 5.0, 0.05)
    assert (verdict.verdict, verdict.pairs_used, verdict.pairs_dropped) == (W.NO_DATA, 0, 3)
    assert (verdict.p_value, verdict.statistic_percent, verdict.interval_percent) == (None, None, None)
    assert judge([], Direction.LOWER, 5.0, 0.05).verdict is W.NO_DATA


@pytest.mark.parametrize(("percent", "else_word"), [(-10.0, W.IMPROVED), (0.0, W.SAME)])
def test_unequal_drops_turn_a_pass_into_inconclusive(percent: float, else_word: VerdictWord) -> None:
    kept = _pairs(_noisy(10, percent, 0.01))
    assert judge([*kept, *_spoiled(3)], Direction.LOWER, 5.0, 0.05).verdict is else_word
    verdict = judge([*kept, *_spoiled(6)], Direction.LOWER, 5.0, 0.05)
    assert verdict.verdict is W.INCONCLUSIVE
    assert verdict.drops.candidate == 6
    assert f"without that it would be {else_word}" in verdict.reason


def test_unequal_drops_do_not_excuse_a_regression() -> None:
    verdict = judge([*_pairs(_noisy(10, 10.0, 0.01)), *_spoiled(6)], Direction.LOWER, 5.0, 0.05)
    assert verdict.verdict is W.REGRESSED
    assert "dropped unequally" in verdict.reason


def test_a_stricter_level_withdraws_a_weak_claim() -> None:
    ratios = _noisy(10, 3.0, 0.05)
    p_value = judge(_pairs(ratios), Direction.LOWER, 1.0, 0.05).p_value
    assert p_value is not None
    assert judge(_pairs(ratios), Direction.LOWER, 1.0, p_value).verdict is W.REGRESSED
    assert judge(_pairs(ratios), Direction.LOWER, 1.0, p_value / 2).verdict is W.INCONCLUSIVE


@pytest.mark.parametrize(
    ("floor_percent", "alpha", "assumptions", "named"),
    [
        (-1.0, 0.05, Assumptions(), "floor_percent"),
        (100.0, 0.05, Assumptions(), "floor_percent"),
        (5.0, 0.0, Assumptions(), "alpha"),
        (5.0, 0.5, Assumptions(), "alpha"),
        (5.0, 0.05, Assumptions(power=0.01), "power"),
        (5.0, 0.05, Assumptions(noise_log_sd=-0.1), "noise_log_sd"),
        (5.0, 0.05, Assumptions(confidence=1.0), "confidence"),
    ],
)
def test_impossible_thresholds_are_refused_by_name(
    floor_percent: float, alpha: float, assumptions: Assumptions, named: str
) -> None:
    with pytest.raises(AnalysisInputError, match=named):
        judge(_pairs([1.0, 1.1]), Direction.LOWER, floor_percent, alpha, assumptions)


def test_equal_builds_are_called_regressed_no_more_often_than_alpha() -> None:
    draws = 1000
    samples = np.exp(np.random.default_rng(8).standard_t(3, size=(draws, 8)) * 0.03)
    words = [judge(_pairs(list(sample)), Direction.LOWER, 0.0, 0.05).verdict for sample in samples]
    assert 0.02 <= words.count(W.REGRESSED) / draws <= 0.05 + 3 * (0.05 * 0.95 / draws) ** 0.5


ratio_lists = st.lists(st.floats(min_value=0.2, max_value=5.0), min_size=1, max_size=10)
directions = st.sampled_from(Direction)
MIRRORED = {W.REGRESSED: W.IMPROVED, W.IMPROVED: W.REGRESSED}


@given(ratio_lists, directions)
def test_swapping_the_arms_inverts_estimate_and_interval_and_keeps_p(
    ratios: list[float], direction: Direction
) -> None:
    pairs = _pairs(ratios)
    swapped = [Pair(pair.pair_id, pair.candidate, pair.baseline) for pair in pairs]
    one, other = judge(pairs, direction, 0.0, 0.05), judge(swapped, direction, 0.0, 0.05)
    assert _log(other.statistic_percent) == pytest.approx(-_log(one.statistic_percent), abs=1e-9)
    assert (one.interval_percent is None) == (other.interval_percent is None) == (len(ratios) == 1)
    if one.interval_percent is not None and other.interval_percent is not None:
        assert _log(other.interval_percent[0]) == pytest.approx(-_log(one.interval_percent[1]), abs=1e-9)
    if one.statistic_percent != 0:
        assert other.p_value == one.p_value
    assert other.verdict is MIRRORED.get(one.verdict, one.verdict)


def _log(percent: float | None) -> float:
    assert percent is not None
    return math.log1p(percent / 100)


@given(ratio_lists, directions, st.sampled_from([1e-9, 1e-3, 7.3, 1e9]))
def test_another_unit_changes_nothing(ratios: list[float], direction: Direction, scale: float) -> None:
    one = judge(_pairs(ratios), direction, 2.0, 0.05)
    other = judge(_pairs(ratios, scale), direction, 2.0, 0.05)
    assert other.statistic_percent == pytest.approx(one.statistic_percent, rel=1e-6, abs=1e-6)
    assert (other.mde_percent is None) == (one.mde_percent is None) == (len(ratios) == 1)
    if one.mde_percent is not None:
        assert other.mde_percent == pytest.approx(one.mde_percent, rel=1e-6, abs=1e-6)
    # Where the estimate is nothing but rounding, its sign and so the side of the p may turn with the unit.
    if abs(_log(one.statistic_percent)) > 1e-9:
        assert other.p_value == one.p_value


@given(ratio_lists, directions, st.integers(0, 4))
def test_every_number_is_finite_and_in_its_range(
    ratios: list[float], direction: Direction, dropped: int
) -> None:
    verdict = judge([*_pairs(ratios), *_spoiled(dropped)], direction, 2.0, 0.05)
    assert (verdict.pairs_used, verdict.pairs_dropped) == (len(ratios), dropped)
    assert verdict.p_value is not None
    assert 0 < verdict.p_value <= 1
    assert verdict.statistic_percent is not None
    assert (verdict.interval_percent is None) == (len(ratios) == 1)
    if verdict.interval_percent is not None:
        assert verdict.interval_percent[0] <= verdict.statistic_percent <= verdict.interval_percent[1]
    numbers = [getattr(verdict, field.name) for field in fields(Verdict)]
    assert all(math.isfinite(number) for number in numbers if isinstance(number, float))
    assert verdict.reason
