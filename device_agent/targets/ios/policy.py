"""When a device may start a run, and when a run must end: heat, charge, screen, rest between runs. Pure.

A gate remembers: what was hot must be cool for a while, what was empty must be charged a bit further than to
the floor, else a device at a threshold would be granted and taken back again and again. Times are monotonic
seconds of the agent.
"""

from dataclasses import dataclass, replace
from typing import Final

from contract.device_reasons import DeviceReason
from contract.events.device import ThermalState
from contract.failures import FailureReason
from device_agent.floor.start_policy import StartPolicy


@dataclass(frozen=True, slots=True)
class ConditionReading:
    """What was read of the device at once. None: this system or device does not tell it."""

    read_s: float
    thermal: ThermalState = "unknown"
    battery_percent: float | None = None
    charging: bool | None = None
    temperature_celsius: float | None = None
    low_power_mode: bool | None = None
    screen_on: bool | None = None


@dataclass(frozen=True, slots=True)
class GateMemory:
    """What a gate must remember between two looks. run_ended_s: of the last run on the device."""

    hot: bool = False
    cool_since_s: float | None = None
    charging: bool = False
    run_ended_s: float | None = None


@dataclass(frozen=True, slots=True)
class Gate:
    """Whether a run may start. reasons: words for DeviceReport; advice: one sentence for each, in that order.

    ready_in_s: how long the waiting takes at least, where that is known. memory: for the next look.
    """

    reasons: tuple[str, ...]
    advice: tuple[str, ...]
    ready_in_s: float | None
    memory: GateMemory


@dataclass(frozen=True, slots=True)
class _Obstacle:
    reason: str
    advice: str
    left_s: float | None = None


_ABOVE_NOMINAL: Final = frozenset({"fair", "serious", "critical"})


def judge_start(
    reading: ConditionReading | None, policy: StartPolicy, memory: GateMemory, now_s: float
) -> Gate:
    """The gate at this moment. A reading that is missing or too old keeps it shut as `checking`."""
    obstacles = [_rest(policy, memory, now_s)]
    if reading is None or now_s - reading.read_s > policy.reading_max_age_s:
        obstacles.append(
            _Obstacle(DeviceReason.CHECKING.value, "its battery and temperature could not be read yet")
        )
    else:
        memory = _remember(reading, policy, memory, now_s)
        obstacles += [
            _heat(reading, policy, memory, now_s),
            _charge(reading, policy, memory),
            *_settings(reading),
        ]
    found = [obstacle for obstacle in obstacles if obstacle is not None]
    left_s = [obstacle.left_s for obstacle in found]
    known_s = [each for each in left_s if each is not None]
    return Gate(
        reasons=tuple(obstacle.reason for obstacle in found),
        advice=tuple(obstacle.advice for obstacle in found),
        ready_in_s=max(known_s) if found and len(known_s) == len(left_s) else None,
        memory=memory,
    )


def abort_reason(reading: ConditionReading, policy: StartPolicy) -> FailureReason | None:
    """Why a run that is going on must end; None when it may go on, warm or not (its samples say so)."""
    if reading.thermal == "critical":
        return FailureReason.THERMAL_ABORT
    level = reading.battery_percent
    if level is not None and level < policy.abort_battery_percent and not reading.charging:
        return FailureReason.BATTERY_LOW
    return None


def _remember(reading: ConditionReading, policy: StartPolicy, memory: GateMemory, now_s: float) -> GateMemory:
    level = reading.battery_percent
    wanted = policy.charge_resume_percent if memory.charging else policy.charge_floor_percent
    memory = replace(memory, charging=level is not None and level < wanted)
    if _is_hot(reading, policy, memory):
        return replace(memory, hot=True, cool_since_s=None)
    if not memory.hot:
        return memory
    cool_since_s = now_s if memory.cool_since_s is None else memory.cool_since_s
    settled = now_s - cool_since_s >= policy.settle_s
    return replace(memory, hot=not settled, cool_since_s=None if settled else cool_since_s)


def _is_hot(reading: ConditionReading, policy: StartPolicy, memory: GateMemory) -> bool:
    if reading.thermal in _ABOVE_NOMINAL:
        return True
    if reading.temperature_celsius is None:
        return False
    # Once hot, it must fall below the lower of the two.
    if memory.hot:
        return reading.temperature_celsius > policy.cool_celsius
    return reading.temperature_celsius >= policy.warm_celsius


def _rest(policy: StartPolicy, memory: GateMemory, now_s: float) -> _Obstacle | None:
    if memory.run_ended_s is None:
        return None
    left_s = memory.run_ended_s + policy.cool_down_s - now_s
    if left_s <= 0:
        return None
    return _Obstacle(DeviceReason.COOL_DOWN.value, f"it rests after a run, {left_s:.0f} s more", left_s)


def _heat(
    reading: ConditionReading, policy: StartPolicy, memory: GateMemory, now_s: float
) -> _Obstacle | None:
    if not memory.hot:
        return None
    if memory.cool_since_s is not None:
        left_s = memory.cool_since_s + policy.settle_s - now_s
        return _Obstacle(DeviceReason.HOT.value, f"it is cool again and settles, {left_s:.0f} s more", left_s)
    if reading.thermal in _ABOVE_NOMINAL:
        return _Obstacle(DeviceReason.HOT.value, f"its thermal state is {reading.thermal}; let it cool down")
    return _Obstacle(
        DeviceReason.HOT.value,
        f"its battery has {reading.temperature_celsius:.0f} °C; it may start again at "
        f"{policy.cool_celsius:.0f} °C",
    )


def _charge(reading: ConditionReading, policy: StartPolicy, memory: GateMemory) -> _Obstacle | None:
    level = reading.battery_percent
    if not memory.charging or level is None:
        return None
    plug = "" if reading.charging else "; it does not charge: check cable, port and hub"
    told = f"its battery has {level:.0f} %; it may start again at {policy.charge_resume_percent:.0f} %{plug}"
    if level < policy.charge_floor_percent:
        return _Obstacle(FailureReason.BATTERY_LOW.value, told)
    return _Obstacle(DeviceReason.CHARGING.value, told)


def _settings(reading: ConditionReading) -> list[_Obstacle]:
    """What a person must change at the device; nothing is assumed of what the device does not tell."""
    found = []
    if reading.low_power_mode:
        found.append(
            _Obstacle(DeviceReason.LOW_POWER_MODE.value, "switch off Settings, Battery, Low Power Mode")
        )
    if reading.screen_on is False:
        found.append(
            _Obstacle(
                DeviceReason.SCREEN_OFF.value,
                "wake its screen and set Settings, Display & Brightness, Auto-Lock to Never",
            )
        )
    return found
