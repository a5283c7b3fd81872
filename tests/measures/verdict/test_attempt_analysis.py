"""Whatever was asked within the contract's bounds and whatever events came: an answer, never an exception."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.events import Stream
from contract.jobs import TrialSpec
from contract.metrics import METRICS
from contract.rest import GateRequest, RunRequest
from contract.states import GateExit, JobOutcome, RunOutcome
from measures.verdict.attempt_analysis import AttemptAnalysis, analyse
from measures.verdict.gate import JobStanding, gate_view, run_outcome
from measures.verdict.metric_verdicts import ComparisonPlan, can_gate
from tests.fakes.attempt_story import AttemptStory, TrialStory
from tests.fakes.identity import HOST
from tests.fakes.paired_attempt import comparison_plan, paired_story

PLAN = comparison_plan(pairs=3)
GATED = [name for name, definition in METRICS.items() if can_gate(definition)]


def _analysis(plan: ComparisonPlan, story: AttemptStory) -> AttemptAnalysis:
    return analyse(HOST, plan, story.events, None, ended=True)


def _gate(analysis: AttemptAnalysis) -> JobStanding:
    return JobStanding(
        place="host-1",
        outcome=JobOutcome.SUCCEEDED,
        verdicts=analysis.verdicts,
        unanswered=analysis.unanswered,
    )


def _within(model: type[GateRequest | RunRequest], name: str, value: Any = None) -> st.SearchStrategy[Any]:
    """Values of a number's field, from the bounds that the contract itself declares for it."""
    info = model.model_fields[name]
    bounds = {
        kind: getattr(each, kind)
        for each in info.metadata
        for kind in ("ge", "lt", "le")
        if hasattr(each, kind)
    }
    low, high = bounds["ge"], bounds.get("le", bounds.get("lt"))
    if info.annotation is int:
        return st.integers(low, high - ("lt" in bounds))
    return st.floats(low, high, exclude_max="lt" in bounds)


@st.composite
def _asked(draw: st.DrawFn) -> ComparisonPlan:
    metrics = draw(st.lists(st.sampled_from(GATED), min_size=1, max_size=3, unique=True))
    floors = st.floats(0, 100, exclude_max=True)
    gate = GateRequest(
        metrics=metrics,
        alpha=draw(_within(GateRequest, "alpha")),
        floor_percent={name: draw(floors) for name in draw(st.lists(st.sampled_from(metrics), unique=True))},
    )
    pairs = draw(st.integers(1, 4) | st.sampled_from([19, 21]))
    return replace(comparison_plan(pairs, gate), seed=draw(_within(RunRequest, "seed")))


@settings(max_examples=60, deadline=None)
@given(_asked(), st.data())
def test_all_that_the_contract_lets_a_person_ask_has_an_answer(
    plan: ComparisonPlan, data: st.DataObject
) -> None:
    lasts = st.sampled_from([0.0, 1e-6, 140.0, 200.0, 1e9])
    footprints = st.sampled_from([None, 0, 1, 400_000_000, 2**53 - 1])

    def change(_: TrialSpec) -> dict[str, Any]:
        fields: dict[str, Any] = {"footprint_bytes": data.draw(footprints)}
        if data.draw(st.booleans()):
            fields |= {"calls": (), "finished_ms": data.draw(lasts)}
        return fields

    analysis = _analysis(plan, paired_story(plan, change))
    assert analysis.unanswered == ""
    gate = gate_view([_gate(analysis)], plan.gate)
    assert {verdict.metric for verdict in gate.metrics} == set(plan.gate.metrics)


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"floor_percent": {"wall_s": 100.0}}, "floor_percent: 100.0 is not in [0, 100)"),
        ({"alpha": 1e-9}, "alpha: 1e-09 is not in [0.0001, 0.5)"),
    ],
)
def test_what_an_earlier_version_took_has_a_verdict_that_says_why_there_is_none(
    asked: dict[str, Any], why: str
) -> None:
    plan = replace(PLAN, gate=GateRequest.model_construct(**asked))
    analysis = _analysis(plan, paired_story(plan))
    gate = gate_view([_gate(analysis)], plan.gate)
    assert (gate.exit_code, gate.verdict) == (GateExit.INFRASTRUCTURE, "infrastructure")
    assert why in gate.reason
    assert analysis.report.arms["paged"].metrics["wall_s"].n == 3


@pytest.mark.parametrize("number", [9, 2**31 - 1])
def test_a_trial_that_nobody_planned_gives_no_figure(number: int) -> None:
    story = AttemptStory()
    story.trial(TrialStory(number, "paged", number))
    analysis = _analysis(PLAN, story)
    assert f"trial {number} (arm paged, pair {number}) is not one that was planned" in analysis.unanswered
    assert analysis.samples == ()
    assert "events_invalid" in analysis.report.failures[0]


def test_a_fault_of_the_analysis_itself_is_told_in_report_and_gate() -> None:
    broken: Any = {Stream.CONTROL: ["not an event"]}
    analysis = analyse(HOST, PLAN, broken, None, ended=True)
    assert "AttributeError" in analysis.unanswered
    assert "report this text as a bug of dynofarm" in analysis.report.failures[0]
    gate = gate_view([_gate(analysis)], PLAN.gate)
    assert (gate.exit_code, "AttributeError" in gate.reason) == (GateExit.INFRASTRUCTURE, True)


def test_a_run_of_one_arm_whose_events_give_no_result_does_not_pass() -> None:
    plan = replace(PLAN, baseline="paged", candidate="paged")
    story = paired_story(plan)
    story.control("trial_started", trial=1, arm="serial", pair=None, warmup=True)
    standing = _gate(_analysis(plan, story))
    assert "no result: host-1: trial 1 started twice" in gate_view([standing], plan.gate).reason
    assert run_outcome([standing]) is RunOutcome.INFRA_ERROR


def test_values_of_two_units_drop_their_pair_and_say_so() -> None:
    story = paired_story(
        PLAN, lambda trial: {"calls": (), "finished_ms": 1e-6 if trial.arm == "paged" else 1e9}
    )
    verdict = _analysis(PLAN, story).verdicts["wall_s"]
    assert (verdict.pairs_used, verdict.pairs_dropped) == (0, 3)
    assert "is too far from the other arm's" in verdict.reason


def test_a_metric_that_is_0_in_an_arm_is_inconclusive_and_not_the_labs_fault() -> None:
    plan = comparison_plan(3, GateRequest(metrics=["queue_ms"]))
    analysis = _analysis(plan, paired_story(plan))
    gate = gate_view([_gate(analysis)], plan.gate)
    assert (gate.verdict, gate.exit_code) == ("inconclusive", GateExit.INCONCLUSIVE)
    assert "0 has no log ratio" in gate.reason
