"""Spread of repeated measurements."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from measures.metrics.spread import Spread, spread_of

finite = st.floats(min_value=-1e12, max_value=1e12)


def test_an_even_number_of_values_has_the_mean_of_the_middle_two_as_median() -> None:
    assert spread_of([4.0, 1.0, 3.0, 10.0]) == Spread(median=3.5, min=1.0, max=10.0, n=4)


def test_a_generator_is_read_once() -> None:
    assert spread_of(float(value) for value in (2, 7, 3)).n == 3


@pytest.mark.parametrize("values", [[], [1.0, math.nan], [math.inf]])
def test_no_values_and_values_that_are_not_finite_are_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match="values"):
        spread_of(values)


@given(st.lists(finite, min_size=1, max_size=30))
def test_the_order_of_the_values_does_not_matter_and_the_median_lies_between(values: list[float]) -> None:
    spread = spread_of(values)
    assert spread == spread_of(sorted(values, reverse=True))
    assert spread.min <= spread.median <= spread.max
