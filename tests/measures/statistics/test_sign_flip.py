"""The sign-flip test: exact, deterministic, and valid."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import permutation_test

from measures.errors import AnalysisInputError
from measures.statistics.sign_flip import EXACT_PAIRS, RANDOM_DRAWS, sign_flip_p

ratios = st.lists(st.floats(min_value=-2, max_value=2), min_size=1, max_size=12)


@pytest.mark.parametrize("count", [1, 5, 6, 8, 10, 14, 20])
def test_the_smallest_p_is_one_over_all_sign_patterns(count: int) -> None:
    assert sign_flip_p([0.01 * (number + 1) for number in range(count)], seed=0) == 2.0**-count


def test_equal_ratios_tie_exactly_in_spite_of_rounding() -> None:
    assert sign_flip_p([0.1] * 9, seed=0) == 2.0**-9
    # 0.1 + 0.2 - 0.3 is not zero in floats; it and its opposite tie, and both must count.
    assert sign_flip_p([0.1, 0.2, -0.3], seed=0) == 5 / 8


def test_no_change_at_all_has_p_one() -> None:
    assert sign_flip_p([0.0] * 8, seed=0) == 1.0


@pytest.mark.parametrize("seed", range(5))
def test_the_exact_p_is_that_of_scipys_permutation_test(seed: int) -> None:
    values = np.random.default_rng(seed).normal(0.2, 1.0, size=9)
    oracle = permutation_test(
        (values,), np.mean, permutation_type="samples", alternative="greater", n_resamples=np.inf
    )
    assert sign_flip_p(values, seed=0) == pytest.approx(float(oracle.pvalue), abs=1e-12)


def test_up_to_twenty_pairs_the_seed_has_no_influence() -> None:
    values = np.random.default_rng(3).normal(0.1, 1.0, size=EXACT_PAIRS)
    assert sign_flip_p(values, seed=1) == sign_flip_p(values, seed=2)


def test_above_twenty_pairs_the_seed_decides_and_p_stays_near_the_exact_one() -> None:
    # One ratio of nothing does not change the exact p, but takes the count over the limit.
    values = np.random.default_rng(4).normal(0.3, 1.0, size=EXACT_PAIRS)
    drawn = sign_flip_p([*values, 0.0], seed=1)
    assert drawn == sign_flip_p([*values, 0.0], seed=1)
    assert drawn != sign_flip_p([*values, 0.0], seed=2)
    assert drawn == pytest.approx(sign_flip_p(values, seed=0), abs=4 * (0.25 / RANDOM_DRAWS) ** 0.5)


def test_a_drawn_p_is_never_zero() -> None:
    assert sign_flip_p([1.0] * 60, seed=0) == 1 / (1 + RANDOM_DRAWS)


@pytest.mark.parametrize("bad", [[], [float("nan")], [float("inf"), 1.0]])
def test_nothing_and_numbers_that_are_not_finite_are_refused(bad: list[float]) -> None:
    with pytest.raises(AnalysisInputError, match="log_ratios"):
        sign_flip_p(bad, seed=0)


def test_over_all_sign_patterns_of_one_sample_the_test_rejects_no_more_than_its_level() -> None:
    sizes = np.array([0.1, 0.35, 0.5, 0.8, 1.3, 2.1])
    p_values = [sign_flip_p(sizes * signs, seed=0) for signs in itertools.product((-1, 1), repeat=6)]
    for level in (0.02, 0.05, 0.1, 0.25, 0.5):
        assert np.mean(np.array(p_values) <= level) <= level


@given(ratios)
def test_p_is_in_0_to_1_and_the_two_sides_cover_everything(values: list[float]) -> None:
    upper = sign_flip_p(values, seed=0)
    lower = sign_flip_p([-value for value in values], seed=0)
    assert 0 < upper <= 1
    assert 0 < lower <= 1
    assert upper + lower >= 1


@given(ratios, st.randoms(use_true_random=False))
def test_the_order_of_the_pairs_does_not_matter(values: list[float], shuffler: object) -> None:
    shuffled = list(values)
    shuffler.shuffle(shuffled)
    assert sign_flip_p(shuffled, seed=0) == sign_flip_p(values, seed=0)
