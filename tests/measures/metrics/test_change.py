"""Changes in per cent: of a baseline that is something, and of times that can be."""

import pytest

from measures.errors import AnalysisInputError
from measures.metrics.change import change_percent, reduction_percent, speedup


@pytest.mark.parametrize(
    ("baseline", "candidate", "percent"),
    [
        (2.0, 1.5, -25.0),
        (2.0, 2.0, 0.0),
        (-2.0, -1.0, 50.0),
        (1.0, 11.0, 1000.0),
        # 21,354 per cent say only that the baseline is next to nothing.
        (0.01, 2.15, None),
        (0.0, 2.0, None),
        (0.0, 0.0, None),
    ],
)
def test_a_change_is_in_per_cent_of_a_baseline_that_is_something(
    baseline: float, candidate: float, percent: float | None
) -> None:
    assert change_percent(baseline, candidate) == (None if percent is None else pytest.approx(percent))


def test_sixty_percent_less_time_is_two_and_a_half_times_as_fast() -> None:
    assert reduction_percent(100.0, 40.0) == pytest.approx(60.0)
    assert speedup(100.0, 40.0) == pytest.approx(2.5)


def test_a_slower_candidate_has_a_negative_reduction_and_a_speed_below_one() -> None:
    assert reduction_percent(100.0, 125.0) == pytest.approx(-25.0)
    assert speedup(100.0, 125.0) == pytest.approx(0.8)


@pytest.mark.parametrize("bad", [0.0, -1.0, float("inf"), float("nan")])
def test_times_that_cannot_be_are_refused(bad: float) -> None:
    for function in (reduction_percent, speedup):
        with pytest.raises(AnalysisInputError, match="positive"):
            function(bad, 1.0)
        with pytest.raises(AnalysisInputError, match="positive"):
            function(1.0, bad)
