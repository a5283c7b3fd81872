"""Conditions of each trial: where they come from, what they drop, and what a reader is told of them."""

from typing import Any

import pytest

from contract.events import Stream
from measures.facts.attempt import AttemptFacts, TrialConditions
from measures.facts.conditions import condition_flags
from measures.facts.reader import attempt_facts
from measures.metrics.samples import samples_of
from measures.verdict.metric_verdicts import metric_pairs
from tests.fakes.attempt_story import AttemptStory, TrialStory
from tests.fakes.paired_attempt import comparison_plan, measured, paired_story


def battery(story: AttemptStory, at_ms: float = 0.0, stream: Stream = Stream.SAMPLES, **change: Any) -> None:
    """A sample; charging at 80 % unless told otherwise."""
    fields = {"level_percent": 80.0, "charging": True, "low_power_mode": False, **change}
    story.add(stream, "battery_sampled", at_ms, **fields)


def two_trials(story: AttemptStory, **change: Any) -> AttemptFacts:
    """A trial on power, a sample that differs, a trial after it."""
    battery(story)
    story.trial(TrialStory(1, "serial", 1))
    battery(story, -5, **change)
    story.trial(TrialStory(2, "paged", 1))
    return attempt_facts(story.events)


def test_a_trial_has_the_conditions_of_its_own_time() -> None:
    facts = two_trials(AttemptStory(), level_percent=60.0, charging=False, low_power_mode=True)
    first, second = facts.trials
    assert first.conditions == TrialConditions("unknown", 80.0, charging=True, low_power_mode=False)
    # Its last sample before the start says so; the lowest level and any low-power mode count.
    assert second.conditions == TrialConditions("unknown", 60.0, charging=False, low_power_mode=True)


def test_charging_that_changes_within_a_trial_is_not_known() -> None:
    story = AttemptStory()
    battery(story)
    battery(story, 50, charging=False)
    story.trial(TrialStory(1, "serial", 1))
    (trial,) = attempt_facts(story.events).trials
    assert trial.conditions.charging is None


def test_the_device_agents_samples_count_for_the_trial_that_they_name_whatever_their_clock_says() -> None:
    story = AttemptStory()
    story.trial(TrialStory(1, "serial", 1))
    story.trial(TrialStory(2, "paged", 1))
    story.add(Stream.DEVICE_AGENT, "thermal_sampled", -4000, state="fair", trial=2)
    battery(story, -4000, Stream.DEVICE_AGENT, trial=2, level_percent=33.0)
    story.add(Stream.DEVICE_AGENT, "thermal_sampled", 0, state="critical")
    first, second = attempt_facts(story.events).trials
    assert first.conditions == TrialConditions()
    assert second.conditions == TrialConditions("fair", 33.0, charging=True, low_power_mode=False)


def test_without_samples_the_conditions_of_the_attempt_hold_for_power_but_never_for_heat() -> None:
    story = AttemptStory()
    conditions = {
        **dict.fromkeys(("device_model", "os_name", "os_version", "runtime_name", "runtime_version"), "x"),
        **dict.fromkeys(("tier", "dtype", "model_name", "model_digest"), "x"),
        "thermal_state": "nominal",
        "charging": True,
        "low_power_mode": True,
    }
    story.control("conditions_recorded", conditions=conditions)
    story.trial(TrialStory(1, "serial", 1))
    (trial,) = attempt_facts(story.events).trials
    assert trial.conditions == TrialConditions("unknown", None, charging=True, low_power_mode=True)


def test_every_sample_carries_the_conditions_of_its_trial() -> None:
    facts = two_trials(AttemptStory(), charging=False)
    carried = {
        (sample.trial, sample.conditions.charging) for trial in facts.trials for sample in samples_of(trial)
    }
    assert carried == {(1, True), (2, False)}


def test_a_pair_measured_in_low_power_mode_is_dropped() -> None:
    plan = comparison_plan(pairs=1)
    story = paired_story(plan)
    battery(story, -100, low_power_mode=True)
    (pair,) = metric_pairs("wall_s", plan, measured(story))
    assert pair.dropped_reason is not None
    assert "low-power mode was on" in pair.dropped_reason


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"charging": False}, "Charging changed: trial 2 ran on battery, the others while charging."),
        (
            {"low_power_mode": True},
            "Low-power mode was on: trial 2 ran under it; such pairs count in no verdict.",
        ),
    ],
)
def test_trials_under_other_conditions_are_flagged(change: dict[str, Any], says: str) -> None:
    assert condition_flags(two_trials(AttemptStory(), **change).trials) == [says]


def test_even_conditions_are_not_worth_a_word() -> None:
    assert condition_flags(two_trials(AttemptStory()).trials) == []
    assert condition_flags(two_trials(AttemptStory(), level_percent=70.0).trials) == []


def test_warm_trials_are_named_by_state_and_warm_ups_are_not() -> None:
    story = AttemptStory()
    story.add(Stream.SAMPLES, "thermal_sampled", state="serious")
    story.trial(TrialStory(1, "serial", None, warmup=True))
    story.trial(TrialStory(2, "serial", 1))
    story.trial(TrialStory(3, "paged", 1))
    assert condition_flags(attempt_facts(story.events).trials) == [
        "Heat: trials 2 and 3 ran at thermal state serious; such pairs count in no verdict."
    ]
