"""Events become facts, and events that contradict each other become errors."""

from typing import Any

import pytest

from contract.events import Stream
from contract.failures import FailureReason
from measures.facts.attempt import ImpossibleEventsError, TrialStatus
from measures.facts.reader import attempt_facts
from tests.fakes.attempt_story import AttemptStory, CallStory, TrialStory

CALL = {"trial": 1, "agent": "a1", "call": 0}


def _started() -> AttemptStory:
    story = AttemptStory()
    story.control("trial_started", trial=1, arm="paged", pair=1, warmup=False)
    return story


def _arrived() -> AttemptStory:
    story = _started()
    story.control("call_arrived", 10, prompt_tokens=4, **CALL)
    return story


def _finished(**changed: Any) -> dict[str, Any]:
    counts = {"prompt_tokens": 4, "cached_tokens": 0, "computed_tokens": 4, "output_tokens": 1}
    return CALL | counts | {"finish_reason": "stop", "text": "x"} | changed


def test_a_trial_s_events_become_its_facts() -> None:
    story = AttemptStory()
    story.conditions()
    story.budget("paged")
    story.trial(TrialStory(1, "paged", 3, calls=[CallStory("a1"), CallStory("a2", admitted_ms=50.0)]))
    facts = attempt_facts(story.events)
    (trial,) = facts.trials
    assert (trial.arm, trial.pair, trial.status) == ("paged", 3, TrialStatus.COMPLETED)
    assert [call.agent for call in trial.calls] == ["a1", "a2"]
    assert len(trial.calls[0].token_ns) == 3
    assert facts.conditions is not None
    assert list(facts.budgets) == ["paged"]
    assert facts.measured("paged") == (trial,)
    assert facts.measured("serial") == ()


def test_no_event_at_all_is_an_attempt_without_facts() -> None:
    facts = attempt_facts({})
    assert facts.opened_ns is None
    assert facts.trials == ()


def test_a_token_before_its_call_arrived_is_an_error_not_a_small_ttft() -> None:
    story = _arrived()
    story.control("token_emitted", 9.999, index=0, token_id=1, **CALL)
    with pytest.raises(ImpossibleEventsError, match="precedes what it must follow"):
        attempt_facts(story.events)


def test_a_token_of_a_call_that_never_arrived_is_an_error() -> None:
    story = _started()
    story.control("token_emitted", 20, index=0, token_id=1, **CALL)
    with pytest.raises(ImpossibleEventsError, match="never arrived"):
        attempt_facts(story.events)


def test_a_missing_token_is_an_error() -> None:
    story = _arrived()
    story.control("token_emitted", 20, index=1, token_id=1, **CALL)
    with pytest.raises(ImpossibleEventsError, match="0 was due"):
        attempt_facts(story.events)


def test_a_token_after_the_call_s_end_is_an_error() -> None:
    story = _arrived()
    story.control("call_failed", 20, reason="non_finite_logits", detail="nan", **CALL)
    story.control("token_emitted", 21, index=0, token_id=1, **CALL)
    with pytest.raises(ImpossibleEventsError, match="after the call had ended"):
        attempt_facts(story.events)


@pytest.mark.parametrize(
    ("changed", "message"),
    [({"output_tokens": 2}, "1 were emitted"), ({"cached_tokens": 5}, "5 cached tokens in a prompt of 4")],
)
def test_counts_that_contradict_the_events_are_an_error(changed: dict[str, int], message: str) -> None:
    story = _arrived()
    story.control("token_emitted", 20, index=0, token_id=1, **CALL)
    story.control("call_finished", 21, **_finished(**changed))
    with pytest.raises(ImpossibleEventsError, match=message):
        attempt_facts(story.events)


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        ("trial_started", {"trial": 1, "arm": "paged", "pair": 1, "warmup": False}, "started twice"),
        ("call_arrived", CALL | {"prompt_tokens": 4}, "arrived twice"),
        ("trial_finished", {"trial": 2, "status": "completed"}, "which never started"),
    ],
)
def test_what_cannot_follow_is_an_error(kind: str, fields: dict[str, Any], message: str) -> None:
    story = _arrived()
    story.control(kind, 30, **fields)
    with pytest.raises(ImpossibleEventsError, match=message):
        attempt_facts(story.events)


def test_a_trial_that_ends_before_it_began_is_an_error() -> None:
    story = _started()
    story.control("trial_finished", -1, trial=1, status="completed")
    with pytest.raises(ImpossibleEventsError, match="finished before it started"):
        attempt_facts(story.events)


def test_a_trial_without_an_end_is_interrupted() -> None:
    (trial,) = attempt_facts(_arrived().events).trials
    assert trial.status is TrialStatus.INTERRUPTED
    assert not trial.completed


def test_a_retry_is_a_call_of_its_own_and_the_failure_stays() -> None:
    story = _arrived()
    story.control("call_failed", 20, reason="non_finite_logits", detail="nan", **CALL)
    story.control("agent_retried", 21, retry=1, reason="non_finite_logits", **CALL)
    story.control("call_arrived", 22, prompt_tokens=4, **CALL)
    story.control("token_emitted", 30, index=0, token_id=1, **CALL)
    story.control("call_finished", 31, **_finished())
    facts = attempt_facts(story.events)
    first, second = facts.trials[0].calls
    assert first.failed is not None
    assert second.finished is not None
    assert [note.reason for note in facts.failure_notes] == [FailureReason.NON_FINITE_LOGITS]


def test_a_preempted_call_left_the_queue_when_it_was_admitted_first() -> None:
    story = _arrived()
    story.control("call_admitted", 12, cached_tokens=0, **CALL)
    story.control("token_emitted", 20, index=0, token_id=1, **CALL)
    story.control("sequence_preempted", 21, dropped_tokens=5, **CALL)
    story.control("call_admitted", 30, cached_tokens=0, **CALL)
    (call,) = attempt_facts(story.events).trials[0].calls
    assert call.admitted_ns == story.clock_ns + 12_000_000
    assert call.preemptions == 1


def test_a_memory_warning_counts_for_the_trial_that_runs() -> None:
    story = _started()
    story.control("memory_warned", 5, level="warning")
    story.control("trial_finished", 10, trial=1, status="completed")
    story.control("memory_warned", 11, level="warning")
    (trial,) = attempt_facts(story.events).trials
    assert trial.memory_warnings == 1


def test_a_sample_that_is_here_before_its_trial_s_start_is_not_yet_counted() -> None:
    story = AttemptStory()
    story.memory(1, 5)
    assert attempt_facts(story.events).trials == ()


def test_heat_just_before_the_trial_or_within_it_counts_heat_after_it_does_not() -> None:
    story = AttemptStory()
    story.add(Stream.SAMPLES, "thermal_sampled", state="nominal")
    story.trial(TrialStory(1, "paged", 1))
    story.add(Stream.SAMPLES, "thermal_sampled", -5, state="serious")
    story.trial(TrialStory(2, "serial", 1))
    first, second = attempt_facts(story.events).trials
    assert (first.conditions.thermal_state, first.above_nominal) == ("nominal", False)
    assert (second.conditions.thermal_state, second.above_nominal) == ("serious", True)


def test_what_went_wrong_is_collected_from_all_streams() -> None:
    story = _started()
    story.control("runtime_finished", 5, status="failed", reason="model_corrupt", detail="bad magic")
    for reason, signal in (("jetsam", 9), ("app_crash", 11)):
        end = {"outcome": "failed", "reason": reason, "detail": f"signal {signal}"}
        story.add(Stream.DEVICE_AGENT, "runtime_exited", exit_code=None, signal=signal, end=end)
    reasons = [note.reason for note in attempt_facts(story.events).failure_notes]
    assert reasons == [FailureReason.MODEL_CORRUPT, FailureReason.JETSAM, FailureReason.APP_CRASH]
