"""Pairs, what is refused, and drops counted per arm."""

import math

import pytest

from measures.errors import AnalysisInputError, PairValueError
from measures.verdict.pairs import MAX_PAIRS, Drops, Pair, PairArm, drops_of, log_ratios

CANDIDATE = frozenset({PairArm.CANDIDATE})
BASELINE = frozenset({PairArm.BASELINE})


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf, None])
@pytest.mark.parametrize("arm", ["baseline", "candidate"])
def test_a_kept_pair_refuses_a_value_without_a_logarithm_and_names_the_arm(
    arm: str, value: float | None
) -> None:
    values = {"baseline": 1.0, "candidate": 1.0, arm: value}
    with pytest.raises(PairValueError, match=f"pair p7: {arm}"):
        Pair("p7", values["baseline"], values["candidate"])


def test_seconds_against_nanoseconds_are_refused_as_another_unit() -> None:
    with pytest.raises(PairValueError, match="same unit"):
        Pair("p1", 1.0, 2e9)


def test_a_dropped_pair_needs_a_reason_and_an_arm() -> None:
    with pytest.raises(PairValueError, match="arm or arms"):
        Pair("p1", 1.0, None, dropped_reason="thermal state serious")
    with pytest.raises(PairValueError, match="needs a reason"):
        Pair("p1", 1.0, None, dropped_reason="", dropped_arms=CANDIDATE)
    with pytest.raises(PairValueError, match="no reason"):
        Pair("p1", 1.0, 1.0, dropped_arms=CANDIDATE)


def test_a_dropped_pair_has_no_ratio() -> None:
    with pytest.raises(PairValueError, match="killed"):
        _ = Pair("p1", 1.0, None, dropped_reason="killed", dropped_arms=CANDIDATE).log_ratio


def test_only_kept_pairs_give_ratios_in_their_order() -> None:
    pairs = [
        Pair("p1", 1.0, 2.0),
        Pair("p2", 1.0, 9.0, dropped_reason="thermal state serious", dropped_arms=CANDIDATE),
        Pair("p3", 4.0, 1.0),
    ]
    assert log_ratios(pairs).tolist() == pytest.approx([math.log(2), -math.log(4)])


def test_a_pair_that_comes_twice_is_refused() -> None:
    with pytest.raises(AnalysisInputError, match="'p1' comes twice"):
        log_ratios([Pair("p1", 1.0, 2.0), Pair("p1", 1.0, 2.0)])


def test_more_pairs_than_can_be_judged_are_refused() -> None:
    with pytest.raises(AnalysisInputError, match="at most"):
        log_ratios([Pair(str(number), 1.0, 1.0) for number in range(MAX_PAIRS + 1)])


def test_a_pair_that_both_arms_spoiled_counts_once_and_for_each_arm() -> None:
    both = Pair("p1", None, None, dropped_reason="device lost", dropped_arms=BASELINE | CANDIDATE)
    one = Pair("p2", 1.0, None, dropped_reason="killed", dropped_arms=CANDIDATE)
    assert drops_of([both, one, Pair("p3", 1.0, 1.0)]) == Drops(planned=3, pairs=2, baseline=1, candidate=2)


def test_four_of_ten_against_none_is_the_first_unequal_count_as_published() -> None:
    assert not Drops(planned=10, pairs=3, baseline=0, candidate=3).unequal
    four = Drops(planned=10, pairs=4, baseline=0, candidate=4)
    assert four.unequal
    assert four.p_value == pytest.approx(0.043, abs=0.0005)
    assert Drops(planned=10, pairs=4, baseline=4, candidate=0).p_value == four.p_value


def test_equal_drops_are_no_finding_however_many() -> None:
    assert Drops(planned=10, pairs=8, baseline=4, candidate=4).p_value == 1.0
