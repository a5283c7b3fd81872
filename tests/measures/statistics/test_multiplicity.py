"""Screen, fresh pairs, Benjamini-Hochberg."""

import numpy as np
import pytest
from scipy.stats import t

from measures.errors import AnalysisInputError, ReusedPairsError
from measures.statistics.multiplicity import Comparison, confirm, screen


def _comparison(name: str, p_value: float, session: str) -> Comparison:
    return Comparison(name, p_value, frozenset({f"{session}-{name}-1", f"{session}-{name}-2"}))


def test_only_what_is_below_the_level_is_measured_again() -> None:
    seen = [_comparison("ttft", 0.03, "s"), _comparison("rate", 0.05, "s"), _comparison("peak", 0.2, "s")]
    assert [comparison.name for comparison in screen(seen, 0.05)] == ["ttft"]


def test_the_adjusted_p_is_benjamini_hochbergs() -> None:
    names = ["a", "b", "c", "d"]
    flagged = [_comparison(name, 0.01, "s") for name in names]
    fresh = [_comparison(name, p, "f") for name, p in zip(names, (0.01, 0.04, 0.03, 0.2), strict=True)]
    found = confirm(flagged, fresh, 0.05)
    assert [c.adjusted_p for c in found] == pytest.approx([0.04, 0.16 / 3, 0.16 / 3, 0.2])
    assert [c.confirmed for c in found] == [True, False, False, False]


def test_pairs_that_chose_a_comparison_cannot_confirm_it() -> None:
    flagged = [_comparison("ttft", 0.01, "s")]
    with pytest.raises(ReusedPairsError, match="s-ttft-1"):
        confirm(flagged, flagged, 0.05)


@pytest.mark.parametrize("names", [["ttft"], ["ttft", "rate", "peak"], []])
def test_leaving_out_or_adding_a_comparison_is_refused(names: list[str]) -> None:
    flagged = [_comparison("ttft", 0.01, "s"), _comparison("rate", 0.01, "s")]
    with pytest.raises(AnalysisInputError, match="differ in"):
        confirm(flagged, [_comparison(name, 0.01, "f") for name in names], 0.05)


def test_a_name_that_comes_twice_and_a_p_above_one_are_refused() -> None:
    with pytest.raises(AnalysisInputError, match="'a' comes twice"):
        screen([_comparison("a", 0.1, "s"), _comparison("a", 0.2, "s")], 0.05)
    with pytest.raises(AnalysisInputError, match="not in"):
        _comparison("a", 1.1, "s")


def test_nothing_flagged_confirms_nothing() -> None:
    assert confirm([], [], 0.05) == []


def _p_values(generator: np.random.Generator, effects: np.ndarray) -> np.ndarray:
    samples = generator.normal(effects[:, None], 0.03, size=(effects.size, 10))
    statistic = samples.mean(axis=1) / samples.std(axis=1, ddof=1) * 10**0.5
    return np.asarray(t.sf(statistic, 9))


def _confirmed_names(generator: np.random.Generator, effects: np.ndarray) -> set[int]:
    seen = [_comparison(str(i), float(p), "s") for i, p in enumerate(_p_values(generator, effects))]
    flagged = screen(seen, 0.05)
    again = _p_values(generator, effects[[int(c.name) for c in flagged]])
    fresh = [_comparison(c.name, float(p), "f") for c, p in zip(flagged, again, strict=True)]
    return {int(c.name) for c in confirm(flagged, fresh, 0.05) if c.confirmed}


@pytest.mark.slow
def test_480_comparisons_raise_few_false_alarms_and_find_five_real_ones_as_published() -> None:
    generator, draws = np.random.default_rng(21), 300
    nothing, five_real = np.zeros(480), np.zeros(480)
    five_real[:5] = 0.05
    any_false = sum(bool(_confirmed_names(generator, nothing)) for _ in range(draws)) / draws
    found = sum(len(_confirmed_names(generator, five_real) & set(range(5))) for _ in range(draws)) / (
        5 * draws
    )
    assert any_false == pytest.approx(0.045, abs=3 * (0.045 * 0.955 / draws) ** 0.5)
    assert found == pytest.approx(0.97, abs=0.015)
