"""A choice from noisy rounds: right where there is something to choose, over when it is clear, bounded."""

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.calibration.contest import Contest, ContestRules

RULES = ContestRules(tolerance=0.05)


def play(costs: dict[int, Callable[[], float]], rules: ContestRules = RULES) -> Contest:
    contest = Contest(list(costs), rules)
    while not contest.is_over:
        contest.record({value: costs[value]() for value in contest.next_round()})
    return contest


def noisy(cost: float, spread: float, seed: int) -> Callable[[], float]:
    chance = random.Random(seed)
    return lambda: cost * chance.uniform(1 - spread, 1 + spread)


def test_a_clear_difference_is_over_after_the_fewest_rounds() -> None:
    contest = play({1: lambda: 2.0, 2: lambda: 1.0})
    assert (contest.chosen, contest.is_clear, contest.rounds) == (2, True, RULES.rounds_min)


def test_of_equals_the_smallest_is_chosen() -> None:
    contest = play({64: lambda: 1.04, 256: lambda: 1.0, 512: lambda: 1.02})
    assert (contest.best, contest.chosen, contest.is_clear) == (256, 64, True)


def test_what_costs_much_more_is_dropped_after_two_rounds_and_what_costs_more_after_three() -> None:
    contest = Contest([1, 2, 4], RULES)
    for expected in ((1, 2, 4), (4, 2, 1), (2, 4), (4,)):
        assert contest.next_round() == expected
        contest.record({value: {1: 3.0, 2: 1.1, 4: 1.0}[value] for value in expected})
    assert contest.chosen == 4


def test_values_on_the_edge_are_not_clear_and_cost_no_more_than_the_longest_contest() -> None:
    sides = iter([1.0, 1.2] * 20)
    contest = play({1: lambda: next(sides), 2: lambda: 1.0})
    assert (contest.rounds, contest.is_clear) == (RULES.rounds_max, False)
    assert contest.chosen in (1, 2)


def test_one_disturbed_round_of_many_does_not_make_it_unclear() -> None:
    rounds = iter([2.0, 2.0, 0.5, 2.0, 2.0, 2.0, 2.0])
    contest = play({1: lambda: next(rounds), 2: lambda: 1.0}, ContestRules(tolerance=0.05, hopeless=9.0))
    assert (contest.chosen, contest.is_clear, contest.rounds) == (2, True, 6)


def test_a_machine_that_slows_down_for_a_while_favours_nobody() -> None:
    """Each round is slower than the one before; only pairing and turning the order around sees through it."""
    time_s = [1.0]

    def measured(cost: float) -> Callable[[], float]:
        def measure() -> float:
            time_s[0] *= 1.05
            return cost * time_s[0]

        return measure

    assert play({1: measured(1.0), 2: measured(0.8)}).chosen == 2
    assert play({1: measured(0.8), 2: measured(1.0)}).chosen == 1


@given(
    costs=st.lists(st.floats(0.5, 2.0), min_size=1, max_size=6),
    spread=st.floats(0.0, 0.4),
    seed=st.integers(0, 1 << 16),
)
def test_whatever_the_costs_it_ends_with_one_that_was_measured(
    costs: list[float], spread: float, seed: int
) -> None:
    candidates = {value: noisy(cost, spread, seed + value) for value, cost in enumerate(costs, start=1)}
    contest = play(candidates)
    assert contest.chosen in candidates
    assert contest.rounds <= RULES.rounds_max
    assert contest.is_clear or contest.rounds == RULES.rounds_max


@given(costs=st.lists(st.floats(0.5, 2.0), min_size=1, max_size=6))
def test_without_noise_it_is_the_smallest_within_the_tolerance(costs: list[float]) -> None:
    exact = dict(enumerate(costs, start=1))
    contest = play({value: lambda cost=cost: cost for value, cost in exact.items()})
    assert contest.chosen == min(
        value for value, cost in exact.items() if cost / min(costs) <= 1 + RULES.tolerance
    )
    assert contest.is_clear


@given(seed=st.integers(0, 1 << 16), slow=st.floats(1.5, 4.0))
def test_noise_smaller_than_the_difference_never_hides_it(seed: int, slow: float) -> None:
    contest = play({1: noisy(slow, 0.1, seed), 2: noisy(1.0, 0.1, seed + 1)})
    assert contest.chosen == 2


@pytest.mark.parametrize("costs", [{1: 1.0}, {1: 1.0, 2: 0.0}, {1: 1.0, 2: 1.0, 3: 1.0}])
def test_an_incomplete_or_impossible_round_is_refused(costs: dict[int, float]) -> None:
    with pytest.raises(ValueError, match="a round needs"):
        Contest([1, 2], RULES).record(costs)


def test_there_is_nothing_to_choose_among_nothing() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Contest([], RULES)
