"""Pairs of trial values: which count, which are dropped and on whose account, and what is said of them."""

import math
from dataclasses import replace
from typing import Any

import pytest

from contract.events import Stream
from contract.jobs import TrialSpec
from contract.metrics import METRICS
from contract.rest import GateRequest
from measures.verdict.judge import VerdictWord
from measures.verdict.metric_verdicts import can_gate, metric_pairs, verdict_view, verdicts
from measures.verdict.pairs import PairArm
from tests.fakes.paired_attempt import comparison_plan, measured, nothing, paired_story


def test_each_pair_has_the_walls_of_its_two_trials() -> None:
    plan = comparison_plan()
    pairs = metric_pairs("wall_s", plan, measured(paired_story(plan)))
    assert [pair.pair_id for pair in pairs] == ["1", "2", "3", "4", "5", "6"]
    assert all(math.isclose(math.exp(pair.log_ratio), 0.4, rel_tol=1e-6) for pair in pairs)


def test_a_faster_candidate_is_improved() -> None:
    plan = comparison_plan()
    verdict = verdicts(plan, measured(paired_story(plan)))["wall_s"]
    assert verdict.verdict is VerdictWord.IMPROVED
    view = verdict_view("wall_s", verdict)
    assert view.change_percent == pytest.approx(-60.0)
    assert view.statistic == pytest.approx(math.log(0.4))
    assert view.pairs == 6


def test_swapping_the_arms_turns_improved_into_regressed() -> None:
    plan = comparison_plan()
    swapped = replace(plan, baseline="paged", candidate="serial")
    assert verdicts(swapped, measured(paired_story(plan)))["wall_s"].verdict is VerdictWord.REGRESSED


def test_the_run_s_own_floor_is_used_before_the_catalogue_s() -> None:
    gate = GateRequest(metrics=["wall_s", "ttft_ms"], floor_percent={"wall_s": 70.0})
    plan = comparison_plan(gate=gate)
    found = verdicts(plan, measured(paired_story(plan)))
    assert found["wall_s"].verdict is VerdictWord.SMALL_CHANGE
    assert found["ttft_ms"].floor_percent == METRICS["ttft_ms"].floor_percent


def _second_candidate(change: dict[str, Any]) -> Any:
    def of(planned: TrialSpec) -> dict[str, Any]:
        return dict(change) if (planned.arm, planned.pair) == ("paged", 2) else {}

    return of


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"status": "failed", "reason": "jetsam"}, "candidate: the trial failed (jetsam)"),
        ({"finished_ms": None}, "candidate: the trial interrupted"),
        ({"skip": True}, "candidate: the trial never ran"),
    ],
)
def test_a_pair_with_a_broken_trial_is_dropped_on_that_arm_s_account(
    change: dict[str, Any], reason: str
) -> None:
    plan = comparison_plan()
    pairs = metric_pairs("wall_s", plan, measured(paired_story(plan, _second_candidate(change))))
    assert [pair.dropped_reason for pair in pairs] == [None, reason, None, None, None, None]
    assert pairs[1].dropped_arms == {PairArm.CANDIDATE}
    view = verdict_view(
        "wall_s", verdicts(plan, measured(paired_story(plan, _second_candidate(change))))["wall_s"]
    )
    assert (view.pairs, view.pairs_dropped) == (5, 1)
    assert "1 by the candidate" in view.reason


def test_a_pair_measured_while_the_device_was_warm_is_dropped() -> None:
    plan = comparison_plan(pairs=1)
    story = paired_story(plan)
    story.add(Stream.SAMPLES, "thermal_sampled", -100.0, state="serious")
    (pair,) = metric_pairs("wall_s", plan, measured(story))
    assert pair.dropped_reason is not None
    assert "thermal state serious" in pair.dropped_reason


def test_a_metric_that_was_not_measured_drops_every_pair_and_gives_no_verdict() -> None:
    plan = comparison_plan(gate=GateRequest(metrics=["peak_footprint_mb"]))
    story = paired_story(plan, lambda planned: {"footprint_bytes": None})
    verdict = verdicts(plan, measured(story))["peak_footprint_mb"]
    assert verdict.verdict is VerdictWord.NO_DATA
    assert verdict_view("peak_footprint_mb", verdict).verdict == "inconclusive"


def test_a_value_of_zero_is_dropped_since_it_has_no_ratio() -> None:
    plan = comparison_plan(pairs=2, gate=GateRequest(metrics=["preemptions"]))
    pairs = metric_pairs("preemptions", plan, measured(paired_story(plan)))
    assert {pair.dropped_reason for pair in pairs} == {
        "baseline: 0 has no log ratio; candidate: 0 has no log ratio"
    }


def test_while_the_attempt_runs_only_finished_pairs_are_there() -> None:
    plan = comparison_plan()
    half = paired_story(plan, lambda planned: {"skip": True} if (planned.pair or 0) > 3 else {})
    running = replace(measured(half), ended=False)
    assert len(metric_pairs("wall_s", plan, running)) == 3
    assert len(metric_pairs("wall_s", plan, measured(half))) == 6


def test_warm_ups_are_in_no_pair() -> None:
    plan = comparison_plan()
    slow = paired_story(plan, lambda planned: {"finished_ms": 10**6} if planned.warmup else nothing(planned))
    assert verdicts(plan, measured(slow))["wall_s"].statistic_percent == pytest.approx(-60.0)


def test_a_run_of_one_arm_has_no_verdict() -> None:
    plan = replace(comparison_plan(), candidate="serial")
    assert verdicts(plan, measured(paired_story(comparison_plan()))) == {}


def test_counts_shares_and_figures_without_a_direction_do_not_gate() -> None:
    refused = {name for name, definition in METRICS.items() if not can_gate(definition)}
    assert refused == {
        "kv_hit_rate_tokens",
        "kv_hit_rate_requests",
        "prompt_tokens_submitted",
        "preemptions",
        "memory_warnings",
        "failed_calls",
    }
