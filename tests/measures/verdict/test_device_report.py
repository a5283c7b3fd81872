"""The report of one job: arms, reduction and speed-up, reading, failures with advice, sample texts."""

import random
from dataclasses import replace
from typing import Any

import pytest

from contract.events import Stream
from contract.failures import FAILURES, FailureReason
from contract.jobs import TrialSpec
from contract.rest import DeviceReportView
from contract.states import TargetKind
from measures.facts.attempt import FailureNote
from measures.verdict.device_report import MAX_SAMPLE_TEXT_CHARACTERS, device_report
from measures.verdict.metric_verdicts import ComparisonPlan, Measured, verdicts
from tests.fakes.attempt_story import AttemptStory, CallStory
from tests.fakes.identity import HOST
from tests.fakes.paired_attempt import comparison_plan, measured, paired_story

PLAN = comparison_plan()


def _report(
    story: AttemptStory, plan: ComparisonPlan = PLAN, failure: FailureNote | None = None
) -> DeviceReportView:
    return _report_of(measured(story), plan, failure)


def _report_of(
    result: Measured, plan: ComparisonPlan, failure: FailureNote | None = None
) -> DeviceReportView:
    return device_report(HOST, plan, result, verdicts(plan, result), failure)


def test_each_arm_has_its_medians_over_measured_trials() -> None:
    report = _report(paired_story(PLAN))
    serial, paged = report.arms["serial"], report.arms["paged"]
    assert (serial.trials, serial.trials_failed) == (6, 0)
    assert serial.metrics["wall_s"].median == pytest.approx(1.0, rel=0.01)
    assert paged.metrics["wall_s"].median == pytest.approx(0.4, rel=0.01)
    assert paged.metrics["wall_s"].n == 6
    assert set(paged.agent_ttft_ms) == {"a1", "a2"}
    assert [row.name for row in paged.budget] == ["weights"]


def test_reduction_and_speed_up_are_both_told_and_not_mixed_up() -> None:
    report = _report(paired_story(PLAN))
    assert report.wall_reduction_percent == pytest.approx(60.0, rel=0.01)
    assert report.speedup == pytest.approx(2.5, rel=0.01)


CAUSES = ("works", "gain is", "slowly", "Slower", "waits longer", "Contradictory", "Peak memory is higher")


def _reading_of_equal_arms(seed: int) -> str:
    noise = random.Random(seed)

    def vary(_: TrialSpec) -> dict[str, Any]:
        wall_ms = 1000.0 * noise.uniform(0.8, 1.25)
        call = CallStory("a1", token_ms=[wall_ms * share for share in (0.5, 0.7, 0.9)])
        return {"calls": [call], "finished_ms": wall_ms, "footprint_bytes": 400_000_000}

    return " ".join(_report(paired_story(PLAN, vary)).reading)


def test_two_equal_arms_whose_trials_only_vary_have_a_cause_no_oftener_than_the_level_allows() -> None:
    readings = [_reading_of_equal_arms(seed) for seed in range(40)]
    assert all("Wall time" in reading for reading in readings)
    # 5 % for better and 5 % for worse; that the medians differ by more than 3 % is the rule here.
    assert sum(any(cause in reading for cause in CAUSES) for reading in readings) <= 6
    assert sum("do not establish what moved" in reading for reading in readings) >= 30


def test_serial_against_serial_has_no_reading() -> None:
    arms = [arm.model_copy(update={"mode": "serial"}) for arm in PLAN.arms]
    assert _report(paired_story(PLAN), replace(PLAN, arms=arms)).reading == []


def test_the_reading_says_what_the_change_means() -> None:
    reading = " ".join(_report(paired_story(PLAN)).reading)
    assert "Scheduling works" in reading
    assert "Paging works" in reading


def test_there_is_no_reading_against_an_arm_that_is_not_serial() -> None:
    swapped = replace(PLAN, baseline="paged", candidate="serial")
    report = _report(paired_story(PLAN), swapped)
    assert report.reading == []
    assert report.speedup == pytest.approx(0.4, rel=0.01)


def test_the_device_is_the_one_that_was_measured_not_what_it_is_now() -> None:
    report = _report(paired_story(PLAN))
    assert (report.device_model, report.os_version) == ("testhost", "6.1")
    assert report.conditions is not None
    assert report.conditions.dtype == "float32"


def test_an_emulated_device_is_not_named_after_the_machine_that_emulates_it() -> None:
    result = measured(paired_story(PLAN))
    emulated = replace(HOST, kind=TargetKind.VIRTUAL, virtual=True, device_model="iPhone17,1")
    report = device_report(emulated, PLAN, result, verdicts(PLAN, result), None)
    assert (report.device_model, report.os_version, report.virtual) == ("iPhone17,1", "9", True)


def test_an_emulated_device_is_never_shown_as_a_real_one() -> None:
    story = paired_story(PLAN)
    story.conditions(virtual=True)
    assert _report(story).virtual


def test_an_attempt_that_broke_off_counts_its_missing_trials_as_failed() -> None:
    half = paired_story(PLAN, lambda planned: {"skip": True} if (planned.pair or 0) > 2 else {})
    report = _report(half)
    assert (report.arms["paged"].trials, report.arms["paged"].trials_failed) == (6, 4)
    running = _report_of(replace(measured(half), ended=False), PLAN)
    assert (running.arms["paged"].trials, running.arms["paged"].trials_failed) == (2, 0)


def test_without_a_completed_trial_there_is_no_speed_up_and_no_reading() -> None:
    story = paired_story(PLAN, lambda planned: {"status": "failed", "reason": "jetsam"})
    report = _report(story)
    assert (report.speedup, report.wall_reduction_percent, report.reading) == (None, None, [])
    assert report.arms["paged"].trials_failed == 6


def test_each_kind_of_failure_is_told_once_with_what_to_try() -> None:
    story = paired_story(PLAN)
    for position in (7, 9):
        story.control(
            "contamination_found",
            **{"trial": 1, "agent": "a1", "call": 0},
            **{"position": position, "expected_token": 1, "found_token": 2},
        )
    report = _report(story, failure=FailureNote(FailureReason.APP_CRASH, "signal 11", is_end=True))
    crash, contamination = report.failures
    assert crash == f"app_crash: signal 11. What to try: {FAILURES[FailureReason.APP_CRASH].advice}"
    assert contamination.startswith("contamination (2 times): agent a1, position 7: ")


def test_an_end_that_repeats_its_cause_is_not_counted_and_the_cause_says_what_happened() -> None:
    story = AttemptStory()
    reason = {"reason": "context_overflow"}
    story.control("trial_started", trial=1, arm="serial", pair=1, warmup=False)
    story.control("call_arrived", trial=1, agent="a1", call=0, prompt_tokens=600)
    story.control("call_failed", trial=1, agent="a1", call=0, detail="600 tokens do not fit 512", **reason)
    story.control("agent_finished", trial=1, agent="a1", status="failed", retries=0, **reason)
    story.control("trial_finished", 5, trial=1, status="failed", **reason)
    story.control("runtime_finished", 6, status="failed", detail="trial 1: an agent failed", **reason)
    end = FailureNote(FailureReason.CONTEXT_OVERFLOW, "the runtime said that it failed", is_end=True)
    (failure,) = _report(story, failure=end).failures
    assert failure.startswith("context_overflow: agent a1, call 0: 600 tokens do not fit 512. What to try: ")


def test_sample_texts_are_the_candidate_s_newest_and_cut_to_a_readable_length() -> None:
    def change(planned: object) -> dict[str, object]:
        return {"calls": [CallStory("a1", text="word " * 500), CallStory("a2", text="  ")]}

    (text,) = _report(paired_story(PLAN, change)).sample_texts
    assert text.startswith("a1, call 0: word word")
    assert len(text) <= MAX_SAMPLE_TEXT_CHARACTERS + len("a1, call 0: ")


def test_an_attempt_without_any_event_still_has_a_report() -> None:
    report = _report_of(measured(AttemptStory()), PLAN)
    assert report.device_model == "now another model"
    assert report.arms["serial"].metrics == {}


def test_each_pair_shows_the_wall_time_of_its_completed_trials() -> None:
    def change(planned: TrialSpec) -> dict[str, object]:
        spoiled = planned.pair == 2 and planned.arm == "paged"
        return {"status": "failed", "reason": "jetsam"} if spoiled else {}

    pairs = _report(paired_story(PLAN, change)).pairs
    assert [pair.pair for pair in pairs] == [1, 2, 3, 4, 5, 6]
    assert pairs[0].wall_s == pytest.approx({"serial": 1.002, "paged": 0.4008})
    assert list(pairs[1].wall_s) == ["serial"]


def test_only_a_soak_says_whether_memory_stayed_flat() -> None:
    story = AttemptStory()
    story.control("trial_started", trial=3, arm="serial", pair=1, warmup=False)
    for second in range(100):
        story.add(
            Stream.SAMPLES,
            "memory_sampled",
            1000.0 * second,
            trial=3,
            footprint_bytes=500_000_000,
            method="story",
        )
    story.control("trial_finished", 100_000.0, trial=3, status="completed")
    assert _report(story).reading == []
    (sentence,) = _report(story, replace(PLAN, is_soak=True)).reading
    assert sentence.startswith("serial: Memory is flat")
