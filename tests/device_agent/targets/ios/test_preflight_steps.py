"""The preflight steps: what each failure asks of a person, and the iOS matrix."""

from dataclasses import replace

import pytest

from contract.device_reasons import PASSING_REASONS
from contract.failures import FailureReason
from device_agent.floor.start_policy import StartPolicy
from device_agent.ios_worker.protocol import Conditions, Description, WorkerErrorKind
from device_agent.targets.ios import preflight_steps
from device_agent.targets.ios.conditions import gate_steps, reading_of
from device_agent.targets.ios.errors import REASONS, DeviceFaultError
from device_agent.targets.ios.policy import GateMemory, judge_start
from device_agent.targets.ios.preflight_steps import PreflightStep, StepState

DESCRIBED = Description(
    device_id="u",
    device_model="iPhone17,1",
    os_name="iOS",
    os_version="18.5",
    os_build="22F50",
    paired=True,
    locked=False,
    developer_mode=True,
    boot_id="b",
    clock_s=1.0,
    utc_offset_s=0.0,
    virtual=False,
    memory_bytes=None,
)


@pytest.mark.parametrize(
    ("version", "is_supported"),
    [
        *[(version, True) for version in ("16.0", "16.7.2", "17.4", "17.6", "18.5", "26.1", "27.0", "31")],
        *[(version, False) for version in ("12.5", "15.8", "17.0", "17.0.3", "17.3.1", "", "beta")],
    ],
)
def test_the_ios_matrix(version: str, is_supported: bool) -> None:
    step = preflight_steps.ios_step(DESCRIBED.model_copy(update={"os_version": version}))
    assert (step.state is StepState.PASSED) is is_supported
    assert is_supported or "update" in step.reason


@pytest.mark.parametrize("kind", WorkerErrorKind)
def test_every_kind_of_error_is_a_step_that_says_what_to_do_or_passes_by_itself(
    kind: WorkerErrorKind,
) -> None:
    step = preflight_steps.step_of_error(PreflightStep.TUNNEL, kind, "the library's words")
    assert step.state is not StepState.PASSED
    assert step.say
    if step.state is StepState.WAITING:
        assert step.reason in PASSING_REASONS
    else:
        assert step.reason.startswith(f"{step.name}: ")


@pytest.mark.parametrize("kind", WorkerErrorKind)
def test_every_kind_of_error_gives_an_attempt_a_reason(kind: WorkerErrorKind) -> None:
    assert DeviceFaultError(kind, "x").reason is REASONS[kind]


def test_locked_and_developer_mode_are_steps_of_their_own() -> None:
    locked = preflight_steps.unlocked_step(DESCRIBED.model_copy(update={"locked": True}))
    no_mode = preflight_steps.developer_mode_step(DESCRIBED.model_copy(update={"developer_mode": False}))
    assert (locked.name, locked.state) == (PreflightStep.UNLOCKED, StepState.BLOCKED)
    assert "Developer Mode" in no_mode.reason


def test_what_a_device_does_not_say_blocks_nothing() -> None:
    silent = DESCRIBED.model_copy(update={"locked": None, "developer_mode": None})
    steps = [
        preflight_steps.unlocked_step(silent),
        preflight_steps.developer_mode_step(silent),
        preflight_steps.free_space_step(None, 1),
    ]
    assert preflight_steps.reasons_of(steps) == []


def test_too_little_space_says_how_much_is_wanted() -> None:
    assert preflight_steps.free_space_step(2_000_000_000, 1_000_000_000).state is StepState.PASSED
    assert "1.0 GB" in preflight_steps.free_space_step(500_000_000, 1_000_000_000).reason


COOL = Conditions(
    free_bytes=None,
    battery_percent=90,
    charging=True,
    temperature_celsius=25.0,
    low_power_mode=False,
    thermal="nominal",
)


@pytest.mark.parametrize(
    ("changed", "reasons"),
    [
        ({}, []),
        ({"thermal": "serious"}, ["hot"]),
        ({"battery_percent": 3.0}, [FailureReason.BATTERY_LOW.value]),
        ({"low_power_mode": True}, ["low_power: switch off Settings, Battery, Low Power Mode"]),
    ],
)
def test_conditions_are_words_for_waiting_and_sentences_for_a_person(
    changed: dict[str, object], reasons: list[str]
) -> None:
    reading = reading_of(COOL.model_copy(update=changed), 10.0)
    gate = judge_start(reading, StartPolicy(), GateMemory(), 10.0)
    steps = gate_steps(gate)
    assert preflight_steps.reasons_of(steps) == reasons
    assert {step.name for step in steps} >= {
        PreflightStep.BATTERY,
        PreflightStep.THERMAL,
        PreflightStep.LOW_POWER,
    }


def test_reasons_keep_the_order_of_the_ladder_and_are_told_once() -> None:
    step = preflight_steps.blocked(PreflightStep.TRUSTED, "tap Trust")
    assert preflight_steps.reasons_of(
        [step, preflight_steps.passed(PreflightStep.TUNNEL), replace(step)]
    ) == ["trusted: tap Trust"]
