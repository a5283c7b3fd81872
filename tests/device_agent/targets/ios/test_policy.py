"""Start gates and aborts: thresholds with memory, rest after a run, and nothing assumed of the untold."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from contract.device_reasons import BATTERY_REASONS, HEAT_REASONS, PASSING_REASONS
from contract.failures import FailureReason
from device_agent.floor.start_policy import StartPolicy
from device_agent.targets.ios.policy import ConditionReading, GateMemory, abort_reason, judge_start

POLICY = StartPolicy()
GOOD = ConditionReading(
    0.0, "nominal", 90.0, charging=True, temperature_celsius=28.0, low_power_mode=False, screen_on=True
)
COLD_START = GateMemory()


def reasons(
    reading: ConditionReading | None, memory: GateMemory = COLD_START, now_s: float = 0.0
) -> list[str]:
    """Why it may not start now."""
    return list(judge_start(reading, POLICY, memory, now_s).reasons)


def walk(*readings: tuple[float, ConditionReading]) -> list[list[str]]:
    """Reasons at each moment, with the memory carried on."""
    memory, told = COLD_START, []
    for now_s, reading in readings:
        gate = judge_start(replace(reading, read_s=now_s), POLICY, memory, now_s)
        memory = gate.memory
        told.append(list(gate.reasons))
    return told


def test_a_cool_charged_device_with_its_screen_on_may_start() -> None:
    gate = judge_start(GOOD, POLICY, COLD_START, 0.0)
    assert not gate.reasons
    assert (gate.advice, gate.ready_in_s) == ((), None)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"thermal": "fair"}, "hot"),
        ({"thermal": "serious"}, "hot"),
        ({"thermal": "critical"}, "hot"),
        ({"temperature_celsius": 35.0}, "hot"),
        ({"battery_percent": 39.0}, "battery_low"),
        ({"low_power_mode": True}, "low_power_mode"),
        ({"screen_on": False}, "screen_off"),
    ],
)
def test_each_condition_has_its_gate_and_says_what_to_do(change: dict[str, object], reason: str) -> None:
    gate = judge_start(replace(GOOD, **change), POLICY, COLD_START, 0.0)
    assert gate.reasons == (reason,)
    assert len(gate.advice[0]) > 10


def test_what_the_device_does_not_tell_is_not_held_against_it() -> None:
    assert reasons(ConditionReading(0.0)) == []


def test_all_obstacles_are_named_at_once() -> None:
    bad = ConditionReading(0.0, "serious", 3.0, charging=False, low_power_mode=True, screen_on=False)
    assert reasons(bad, GateMemory(run_ended_s=-1.0)) == [
        *("cool_down", "hot", "battery_low", "low_power_mode", "screen_off")
    ]


def test_a_missing_or_old_reading_keeps_it_shut_and_is_not_a_persons_turn() -> None:
    assert reasons(None) == ["checking"]
    assert reasons(GOOD, now_s=121.0) == ["checking"]
    assert "checking" in PASSING_REASONS


def test_after_heat_it_must_be_cool_below_the_lower_level_and_stay_so() -> None:
    def at(celsius: float) -> ConditionReading:
        return replace(GOOD, temperature_celsius=celsius)

    told = walk((0, at(36)), (10, at(33)), (20, at(31.9)), (49, at(31)), (50, at(31)), (60, at(34.9)))
    assert told == [["hot"], ["hot"], ["hot"], ["hot"], [], []]


def test_a_relapse_begins_the_settling_anew() -> None:
    hot = replace(GOOD, thermal="fair")
    told = walk((0, hot), (10, GOOD), (30, hot), (45, GOOD), (74, GOOD), (75, GOOD))
    assert told == [["hot"], ["hot"], ["hot"], ["hot"], ["hot"], []]


def test_after_low_charge_it_must_reach_the_level_to_resume_from() -> None:
    def at(percent: float) -> ConditionReading:
        return replace(GOOD, battery_percent=percent)

    told = walk((0, at(45)), (1, at(39)), (2, at(41)), (3, at(49)), (4, at(50)), (5, at(41)))
    assert told == [[], ["battery_low"], ["charging"], ["charging"], [], []]


def test_a_battery_that_does_not_charge_says_where_to_look() -> None:
    flat = replace(GOOD, battery_percent=10.0, charging=False)
    (advice,) = judge_start(flat, POLICY, COLD_START, 0.0).advice
    assert "cable" in advice


def test_it_rests_after_a_run_and_says_for_how_long() -> None:
    memory = GateMemory(run_ended_s=100.0)
    gate = judge_start(replace(GOOD, read_s=110.0), POLICY, memory, 110.0)
    assert (gate.reasons, gate.ready_in_s) == (("cool_down",), 20.0)
    assert not judge_start(replace(GOOD, read_s=130.0), POLICY, memory, 130.0).reasons


def test_no_time_is_promised_when_one_obstacle_has_none() -> None:
    gate = judge_start(replace(GOOD, thermal="fair"), POLICY, GateMemory(run_ended_s=-1.0), 0.0)
    assert gate.reasons == ("cool_down", "hot")
    assert gate.ready_in_s is None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"thermal": "critical"}, FailureReason.THERMAL_ABORT),
        ({"thermal": "serious"}, None),
        ({"battery_percent": 4.0, "charging": False}, FailureReason.BATTERY_LOW),
        ({"battery_percent": 4.0, "charging": None}, FailureReason.BATTERY_LOW),
        ({"battery_percent": 4.0, "charging": True}, None),
        ({"battery_percent": None}, None),
    ],
)
def test_a_run_ends_only_when_it_would_end_anyway(
    change: dict[str, object], reason: FailureReason | None
) -> None:
    assert abort_reason(replace(GOOD, **change), POLICY) is reason


@pytest.mark.parametrize(
    "wrong",
    [
        {"charge_floor_percent": 60},
        {"cool_celsius": 36},
        {"abort_battery_percent": 41},
        {"cool_down_s": -1},
        {"surprise": 1},
    ],
)
def test_levels_that_contradict_each_other_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        StartPolicy(**wrong)


READINGS = st.builds(
    ConditionReading,
    st.just(0.0),
    st.sampled_from(["nominal", "fair", "serious", "critical", "unknown"]),
    st.none() | st.floats(0, 100),
    st.none() | st.booleans(),
    st.none() | st.floats(0, 60),
    st.none() | st.booleans(),
    st.none() | st.booleans(),
)


@given(st.lists(READINGS, min_size=1, max_size=12), st.floats(1, 100))
def test_whatever_is_read_every_reason_is_known_and_a_hot_or_empty_device_never_starts(
    readings: list[ConditionReading], step_s: float
) -> None:
    told = walk(*((at * step_s, reading) for at, reading in enumerate(readings)))
    known = HEAT_REASONS | BATTERY_REASONS | {"low_power_mode", "screen_off"}
    for reading, found in zip(readings, told, strict=True):
        assert set(found) <= known
        if reading.thermal in {"fair", "serious", "critical"}:
            assert "hot" in found
        if reading.battery_percent is not None and reading.battery_percent < POLICY.charge_floor_percent:
            assert "battery_low" in found


@given(st.lists(st.floats(31, 36), min_size=2, max_size=20))
def test_between_the_two_levels_the_gate_never_opens_again(temperatures: list[float]) -> None:
    steps = [
        (float(at), replace(GOOD, temperature_celsius=each)) for at, each in enumerate([36.0, *temperatures])
    ]
    told = walk(*steps)
    for (before, after), (_, reading) in zip(pairwise(told), steps[1:], strict=True):
        if before == ["hot"] and reading.temperature_celsius > POLICY.cool_celsius:
            assert after == ["hot"]


def test_after_all_is_good_for_the_settling_time_it_opens() -> None:
    assert walk((0, replace(GOOD, thermal="critical", battery_percent=1.0)), (1, GOOD), (31, GOOD))[-1] == []
