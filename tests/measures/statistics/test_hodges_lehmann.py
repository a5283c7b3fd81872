"""Hodges-Lehmann estimate and interval: exact null, published coverage, symmetry."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from measures.errors import AnalysisInputError
from measures.statistics.hodges_lehmann import estimate, interval, signed_rank_null, walsh_averages

values_lists = st.lists(st.floats(min_value=-2, max_value=2), min_size=1, max_size=25)


def test_walsh_averages_are_all_pair_means_with_each_value_itself() -> None:
    assert walsh_averages([1.0, 2.0, 6.0]).tolist() == [1.0, 1.5, 2.0, 3.5, 4.0, 6.0]
    assert estimate([1.0, 2.0, 6.0]) == 2.75


def test_one_wild_pair_of_ten_hardly_moves_the_estimate() -> None:
    calm = [0.010, 0.012, 0.009, 0.011, 0.010, 0.013, 0.008, 0.010, 0.011]
    assert estimate([*calm, 0.9]) == pytest.approx(0.0105, abs=0.001)


@pytest.mark.parametrize("count", [1, 4, 7])
def test_the_null_recurrence_equals_counting_every_set_of_ranks(count: int) -> None:
    counted = np.zeros(count * (count + 1) // 2 + 1)
    for chosen in itertools.product((0, 1), repeat=count):
        counted[sum(rank for rank, is_in in enumerate(chosen, start=1) if is_in)] += 2.0**-count
    assert signed_rank_null(count) == pytest.approx(counted)


@pytest.mark.parametrize(
    ("count", "cut", "confidence"),
    # Critical values of the signed-rank table at two-sided 0.05.
    [
        (6, 0, 0.96875),
        (8, 3, 1 - 2 * 5 / 256),
        (10, 8, 1 - 2 * 25 / 1024),
        (12, 13, 1 - 2 * 87 / 4096),
        (20, 52, None),
    ],
)
def test_the_interval_cuts_what_the_published_signed_rank_table_says(
    count: int, cut: int, confidence: float | None
) -> None:
    values = np.random.default_rng(count).normal(size=count)
    found = interval(values, 0.95)
    averages = walsh_averages(values)
    assert (found.low, found.high) == (averages[cut], averages[-1 - cut])
    assert found.confidence >= 0.95
    if confidence is not None:
        assert found.confidence == pytest.approx(confidence)


def test_five_values_give_their_range_and_say_that_it_is_not_95_percent() -> None:
    found = interval([3.0, 1.0, 2.0, 5.0, 4.0], 0.95)
    assert (found.low, found.high, found.confidence) == (1.0, 5.0, 0.9375)


def test_a_level_met_exactly_is_not_missed_by_rounding() -> None:
    # Cutting one average off each end of five leaves exactly 1 - 2 * 2/32.
    assert interval([1.0, 2.0, 3.0, 4.0, 5.0], 1 - 4 / 32).confidence == 1 - 4 / 32


def test_no_values_and_impossible_levels_are_refused() -> None:
    with pytest.raises(AnalysisInputError, match="values"):
        estimate([])
    with pytest.raises(AnalysisInputError, match="confidence"):
        interval([1.0], 1.0)


def _noise(kind: str, generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    match kind:
        case "t3":
            return generator.standard_t(3, size=shape)
        case "laplace":
            return generator.laplace(size=shape)
        case _:
            return generator.normal(size=shape)


@pytest.mark.parametrize("kind", ["gauss", "t3", "laplace"])
@pytest.mark.parametrize(
    ("count", "low", "high"), [(8, 0.952, 0.963), (10, 0.943, 0.951), (12, 0.960, 0.963)]
)
def test_the_interval_covers_as_often_as_published(count: int, low: float, high: float, kind: str) -> None:
    draws = 1500
    samples = _noise(kind, np.random.default_rng(count), (draws, count))
    bounds = [interval(sample, 0.95) for sample in samples]
    covered = sum(found.low <= 0 <= found.high for found in bounds) / draws
    # Two runs of 1500 draws differ by 0.0079 (one SE of the difference); the range itself was such a run.
    assert low - 0.016 <= covered <= high + 0.016
    assert covered == pytest.approx(bounds[0].confidence, abs=3 * 0.0057)


@given(values_lists)
def test_the_interval_contains_the_estimate(values: list[float]) -> None:
    found = interval(values, 0.95)
    assert found.low <= estimate(values) <= found.high


@given(values_lists)
def test_negated_values_negate_estimate_and_interval(values: list[float]) -> None:
    negated = [-value for value in values]
    found, mirrored = interval(values, 0.95), interval(negated, 0.95)
    assert estimate(negated) == -estimate(values)
    assert (mirrored.low, mirrored.high) == (-found.high, -found.low)
