"""The ladder: what each failure asks of a person, and the iOS matrix."""

from dataclasses import replace

import pytest

from contract.device_reasons import PASSING_REASONS
from contract.failures import FailureReason
from device_agent.floor.start_policy import StartPolicy
from device_agent.ios_worker.protocol import Conditions, Description, WorkerErrorKind
from device_agent.targets.ios import ladder
from device_agent.targets.ios.conditions import gate_steps, reading_of
from device_agent.targets.ios.errors import REASONS, DeviceFaultError
from device_agent.targets.ios.ladder import Rung, Standing
from device_agent.targets.ios.policy import GateMemory, judge_start

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
    step = ladder.ios_step(DESCRIBED.model_copy(update={"os_version": version}))
    assert (step.standing is Standing.PASSED) is is_supported
    assert is_supported or "update" in step.reason


@pytest.mark.parametrize("kind", WorkerErrorKind)
def test_every_kind_of_error_is_a_step_that_says_what_to_do_or_passes_by_itself(
    kind: WorkerErrorKind,
) -> None:
    step = ladder.step_of_error(Rung.TUNNEL, kind, "the library's words")
    assert step.standing is not Standing.PASSED
    assert step.say
    if step.standing is Standing.WAITING:
        assert step.reason in PASSING_REASONS
    else:
        assert step.reason.startswith(f"{step.rung}: ")


@pytest.mark.parametrize("kind", WorkerErrorKind)
def test_every_kind_of_error_gives_an_attempt_a_reason(kind: WorkerErrorKind) -> None:
    assert DeviceFaultError(kind, "x").reason is REASONS[kind]


def test_locked_and_developer_mode_are_steps_of_their_own() -> None:
    locked = ladder.unlocked_step(DESCRIBED.model_copy(update={"locked": True}))
    no_mode = ladder.developer_mode_step(DESCRIBED.model_copy(update={"developer_mode": False}))
    assert (locked.rung, locked.standing) == (Rung.UNLOCKED, Standing.BLOCKED)
    assert "Developer Mode" in no_mode.reason


def test_what_a_device_does_not_say_blocks_nothing() -> None:
    silent = DESCRIBED.model_copy(update={"locked": None, "developer_mode": None})
    steps = [
        ladder.unlocked_step(silent),
        ladder.developer_mode_step(silent),
        ladder.free_space_step(None, 1),
    ]
    assert ladder.reasons_of(steps) == []


def test_too_little_space_says_how_much_is_wanted() -> None:
    assert ladder.free_space_step(2_000_000_000, 1_000_000_000).standing is Standing.PASSED
    assert "1.0 GB" in ladder.free_space_step(500_000_000, 1_000_000_000).reason


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
    assert ladder.reasons_of(steps) == reasons
    assert {step.rung for step in steps} >= {Rung.BATTERY, Rung.THERMAL, Rung.LOW_POWER}


def test_reasons_keep_the_order_of_the_ladder_and_are_told_once() -> None:
    step = ladder.blocked(Rung.TRUSTED, "tap Trust")
    assert ladder.reasons_of([step, ladder.passed(Rung.TUNNEL), replace(step)]) == ["trusted: tap Trust"]
