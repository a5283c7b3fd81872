"""An attempt of two arms in pairs, and the plan that asked for it."""

from collections.abc import Callable
from typing import Any

from contract.jobs import ArmSpec, TrialSpec
from contract.rest import GateRequest
from measures.facts.reader import attempt_facts
from measures.metrics.samples import samples_of
from measures.statistics.order import Design, plan_trials
from measures.verdict.metric_verdicts import ComparisonPlan, Measured
from tests.fakes.attempt_story import AttemptStory, CallStory, TrialStory

ARMS = [ArmSpec(arm="serial", mode="serial"), ArmSpec(arm="paged", mode="paged")]
SERIAL_MS = 1000.0
PAGED_MS = 400.0

Change = Callable[[TrialSpec], dict[str, Any]]


def comparison_plan(pairs: int = 6, gate: GateRequest | None = None) -> ComparisonPlan:
    """serial against paged, one warm-up each, ABBA."""
    planned = plan_trials(("serial", "paged"), pairs, 1, 0, Design.ABBA)
    trials = [TrialSpec(trial=t.position, arm=t.arm, pair=t.pair, warmup=t.warmup) for t in planned]
    return ComparisonPlan(ARMS, "serial", "paged", trials, gate or GateRequest(), 0)


def trial_story(planned: TrialSpec) -> TrialStory:
    """The serial arm takes about 1000 ms and the other 400 ms, with a little noise from pair to pair."""
    noise = 1.0 + 0.002 * ((planned.pair or 0) % 3)
    wall_ms = (SERIAL_MS if planned.arm == "serial" else PAGED_MS) * noise
    tokens = [wall_ms * share for share in (0.5, 0.7, 0.9)]
    return TrialStory(
        planned.trial,
        planned.arm,
        planned.pair,
        calls=[CallStory("a1", token_ms=tokens), CallStory("a2", call=1, token_ms=tokens)],
        finished_ms=wall_ms,
        footprint_bytes=500_000_000 if planned.arm == "serial" else 450_000_000,
        warmup=planned.warmup,
    )


def nothing(planned: TrialSpec) -> dict[str, Any]:
    """No change to any trial."""
    return {}


def paired_story(
    plan: ComparisonPlan, change: Change = nothing, story: AttemptStory | None = None
) -> AttemptStory:
    """All trials of the plan; `change` gives other fields to some of them, {"skip": True} leaves one out."""
    story = story or AttemptStory()
    story.conditions()
    for arm in plan.arms:
        story.budget(arm.arm)
    for planned in plan.trials:
        fields = change(planned)
        if not fields.pop("skip", False):
            usual = trial_story(planned)
            story.trial(TrialStory(**{**vars(usual), **fields}))
    story.control("runtime_finished", status="completed")
    return story


def measured(story: AttemptStory) -> Measured:
    """What analysis makes of it, all events being there."""
    facts = attempt_facts(story.events)
    return Measured(facts, [sample for trial in facts.trials for sample in samples_of(trial)], ended=True)
