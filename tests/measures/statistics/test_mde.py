"""Minimum detectable effect: the published table, and what its power really is."""

import numpy as np
import pytest
from scipy.stats import t

from measures.errors import AnalysisInputError
from measures.statistics.effect import Direction, worsening_percent
from measures.statistics.mde import minimum_detectable_log

COLUMNS = [(5, 0.05), (8, 0.05), (10, 0.05), (20, 0.05), (10, 0.01), (20, 0.01)]
PUBLISHED_PERCENT = {
    0.01: [1.4, 1.0, 0.8, 0.6, 1.2, 0.8],
    0.03: [4.0, 2.9, 2.5, 1.7, 3.5, 2.3],
    0.05: [6.6, 4.8, 4.2, 2.8, 5.8, 3.7],
    0.10: [12.7, 9.3, 8.2, 5.6, 11.2, 7.4],
}


@pytest.mark.parametrize("log_sd", PUBLISHED_PERCENT)
def test_the_published_table_is_reproduced_to_its_digits(log_sd: float) -> None:
    found = [
        worsening_percent(minimum_detectable_log(log_sd, pairs, alpha, power=0.8), Direction.HIGHER)
        for pairs, alpha in COLUMNS
    ]
    assert [round(percent, 1) for percent in found] == PUBLISHED_PERCENT[log_sd]


def test_an_effect_of_that_size_is_found_with_the_stated_power() -> None:
    log_sd, pairs, alpha, draws = 0.03, 10, 0.05, 20_000
    effect = minimum_detectable_log(log_sd, pairs, alpha, power=0.8)
    samples = np.random.default_rng(5).normal(effect, log_sd, size=(draws, pairs))
    statistic = samples.mean(axis=1) / samples.std(axis=1, ddof=1) * pairs**0.5
    assert np.mean(statistic > t.isf(alpha, pairs - 1)) == pytest.approx(0.8, abs=4 * (0.16 / draws) ** 0.5)


def test_no_noise_detects_anything_and_more_pairs_detect_less() -> None:
    assert minimum_detectable_log(0.0, 5, 0.05, power=0.8) == 0.0
    sizes = [minimum_detectable_log(0.03, pairs, 0.05, power=0.8) for pairs in (2, 3, 5, 10, 50, 500)]
    assert sizes == sorted(sizes, reverse=True)


def test_two_pairs_at_a_strict_level_have_an_answer() -> None:
    assert minimum_detectable_log(1.0, 2, 0.001, power=0.8) > 100


@pytest.mark.parametrize(
    ("log_sd", "pairs", "alpha", "named"),
    [
        (0.03, 1, 0.05, "pairs"),
        (-0.1, 5, 0.05, "log_sd"),
        (float("nan"), 5, 0.05, "log_sd"),
        (0.1, 5, 0.9, "alpha"),
    ],
)
def test_impossible_arguments_are_refused_by_name(
    log_sd: float, pairs: int, alpha: float, named: str
) -> None:
    with pytest.raises(AnalysisInputError, match=named):
        minimum_detectable_log(log_sd, pairs, alpha, power=0.8)
