"""Plans of trials, and what they do on real traces of a throttling iPhone."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from measures.errors import AnalysisInputError
from measures.statistics.order import Design, PlannedTrial, plan_trials
from measures.statistics.sign_flip import sign_flip_p

TRACES = Path(__file__).parents[4] / "shared" / "data" / "iphone17pro_sustained_decode_tok_s.json"
ARMS = ("serial", "paged")
RUN_VALUES = 8


def test_warm_ups_of_each_arm_come_first_and_belong_to_no_pair() -> None:
    plan = plan_trials(ARMS, pairs=1, warmups=2, seed=0, design=Design.ABBA)
    assert plan[:4] == [
        PlannedTrial(position, None, arm, warmup=True)
        for position, arm in enumerate(("serial", "paged", "serial", "paged"), start=1)
    ]
    assert not any(trial.warmup for trial in plan[4:])


def test_abba_turns_with_each_pair_and_the_seed_draws_who_begins() -> None:
    orders = {
        "".join("A" if trial.arm == ARMS[0] else "B" for trial in plan_trials(ARMS, 4, 0, seed, Design.ABBA))
        for seed in range(20)
    }
    assert orders == {"ABBAABBA", "BAABBAAB"}


def test_a_random_design_has_every_order_of_three_pairs_among_a_hundred_seeds() -> None:
    plans = {tuple(t.arm for t in plan_trials(ARMS, 3, 0, seed, Design.RANDOM)) for seed in range(100)}
    assert len(plans) == 8


def test_a_seed_gives_the_same_plan_in_every_version() -> None:
    plan = plan_trials(("a", "b"), pairs=8, warmups=0, seed=2026, design=Design.RANDOM)
    assert "".join(trial.arm for trial in plan) == "baabababbabaabab"


@pytest.mark.parametrize(
    ("arms", "pairs", "warmups"), [(("a", "a"), 1, 0), (("a", "b"), 0, 0), (("a", "b"), 1, -1)]
)
def test_one_arm_no_pairs_and_negative_warm_ups_are_refused(
    arms: tuple[str, str], pairs: int, warmups: int
) -> None:
    with pytest.raises(AnalysisInputError):
        plan_trials(arms, pairs, warmups, seed=0, design=Design.ABBA)


@given(st.integers(1, 40), st.integers(0, 3), st.integers(), st.sampled_from(Design))
def test_every_pair_has_both_arms_next_to_each_other(
    pairs: int, warmups: int, seed: int, design: Design
) -> None:
    plan = plan_trials(ARMS, pairs, warmups, seed, design)
    assert [trial.position for trial in plan] == list(range(1, 2 * (pairs + warmups) + 1))
    measured = [trial for trial in plan if not trial.warmup]
    for number in range(pairs):
        two = measured[2 * number : 2 * number + 2]
        assert {trial.arm for trial in two} == set(ARMS)
        assert {trial.pair for trial in two} == {number + 1}


def _arms_in_order(design: str, pairs: int, seed: int) -> np.ndarray:
    """0 for the baseline and 1 for the candidate, in running order."""
    if design == "blocked":
        return np.repeat([0, 1], pairs)
    plan = plan_trials(ARMS, pairs, warmups=0, seed=seed, design=Design(design))
    return np.array([ARMS.index(trial.arm) for trial in plan])


def _rejections(design: str, slowdown: float, draws: int) -> float:
    """Share of draws in which a two-sided sign-flip test at 5 % rejects; 10 pairs on windows of real traces.

    A run is the mean of 8 consecutive values.
    """
    traces = [np.array(values) for values in json.loads(TRACES.read_text()).values()]
    generator = np.random.default_rng(17)
    rejected = 0
    for draw in range(draws):
        arms = _arms_in_order(design, 10, seed=draw)
        trace = traces[generator.integers(len(traces))]
        start = generator.integers(trace.size - arms.size * RUN_VALUES + 1)
        runs = trace[start : start + arms.size * RUN_VALUES].reshape(-1, RUN_VALUES).mean(axis=1)
        ratios = np.log(runs[arms == 0]) - np.log(runs[arms == 1]) + np.log1p(slowdown)
        rejected += 2 * min(sign_flip_p(ratios, seed=0), sign_flip_p(-ratios, seed=0)) <= 0.05
    return rejected / draws


needs_traces = pytest.mark.skipif(
    not TRACES.exists(),
    reason="the 17 iPhone traces are not beside this checkout, in ../shared/data",
)


@needs_traces
def test_on_iphone_traces_running_one_arm_after_the_other_is_a_false_alarm_in_a_third() -> None:
    assert _rejections("blocked", slowdown=0.0, draws=600) == pytest.approx(0.32, abs=0.06)


@needs_traces
@pytest.mark.parametrize("design", list(Design))
def test_on_iphone_traces_our_orders_keep_the_level_and_find_five_percent(design: Design) -> None:
    assert _rejections(design, slowdown=0.0, draws=600) == pytest.approx(0.05, abs=0.027)
    assert _rejections(design, slowdown=0.05, draws=300) >= 0.7
