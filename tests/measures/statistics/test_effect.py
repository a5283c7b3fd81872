"""Percentages of log ratios."""

import math

import pytest

from measures.statistics.effect import Direction, percent_of_log_ratio, worsening_percent


def test_a_log_ratio_and_its_opposite_are_inverse_ratios_not_opposite_percentages() -> None:
    assert percent_of_log_ratio(math.log(2.5)) == pytest.approx(150.0)
    assert percent_of_log_ratio(-math.log(2.5)) == pytest.approx(-60.0)


def test_twice_the_time_is_100_percent_worse_and_half_the_rate_50() -> None:
    assert worsening_percent(math.log(2), Direction.LOWER) == pytest.approx(100.0)
    assert worsening_percent(math.log(2), Direction.HIGHER) == pytest.approx(50.0)


def test_a_ratio_beyond_the_floats_is_infinite_not_an_exception() -> None:
    assert percent_of_log_ratio(1e4) == math.inf
