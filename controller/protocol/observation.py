"""What an agent's report means for a device's state: pure, a walk through the table."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from contract.device_reasons import BATTERY_REASONS, HEAT_REASONS, PASSING_REASONS
from contract.states import DeviceState
from controller.states.devices import DEVICE_MACHINE, DeviceCause


class Condition(StrEnum):
    """A report in one word."""

    USABLE = "usable"
    NOT_YET = "not_yet"
    HOT = "hot"
    BATTERY_LOW = "battery_low"
    BLOCKED = "blocked"


@dataclass(frozen=True, slots=True)
class Sight:
    """A device as its agent and the controller's own books see it.

    busy: the agent says that it holds a lease on it. lease_live: the books say so.
    on_hold: the previous lease holder may still be using it.
    """

    condition: Condition
    busy: bool = False
    lease_live: bool = False
    on_hold: bool = False


def condition_of(ready: bool, reasons: frozenset[str]) -> Condition:  # noqa: FBT001  (the report's own field)
    """A ready device is usable whatever else is said of it; a person's work comes before waiting."""
    if ready:
        return Condition.USABLE
    waiting = PASSING_REASONS | HEAT_REASONS | BATTERY_REASONS
    if reasons - waiting:
        return Condition.BLOCKED
    if reasons & HEAT_REASONS:
        return Condition.HOT
    if reasons & BATTERY_REASONS:
        return Condition.BATTERY_LOW
    return Condition.NOT_YET


def causes_of(state: DeviceState, sight: Sight) -> tuple[DeviceCause, ...]:
    """The edges to follow, in order; empty when the report changes nothing. Visits no state twice."""
    causes: list[DeviceCause] = []
    visited = {state}
    while (cause := _next_cause(state, sight)) is not None:
        state = DEVICE_MACHINE.next_state(state, cause)
        if state in visited:
            break
        visited.add(state)
        causes.append(cause)
    return tuple(causes)


_UNWELL: Final = {
    Condition.BLOCKED: DeviceCause.BLOCKED,
    Condition.HOT: DeviceCause.HOT,
    Condition.BATTERY_LOW: DeviceCause.BATTERY_LOW,
}
# In these states the agent works on the device; it is done when it says ready.
_DONE_WHEN_USABLE: Final = {
    DeviceState.PREPARING: DeviceCause.PREPARED,
    DeviceState.CHECKING: DeviceCause.CHECK_PASSED,
    DeviceState.COOLING: DeviceCause.CONDITION_MET,
    DeviceState.CHARGING: DeviceCause.CONDITION_MET,
    DeviceState.CLEANING: DeviceCause.CLEANED,
    DeviceState.RECOVERING: DeviceCause.RECOVERED,
}


def _next_cause(state: DeviceState, sight: Sight) -> DeviceCause | None:
    if state in {DeviceState.UNKNOWN, DeviceState.ABSENT, DeviceState.LOST}:
        return _cause_of_return(state, sight)
    if state is DeviceState.HELD:
        return None if sight.on_hold or sight.busy else DeviceCause.HOLD_OVER
    if state is DeviceState.BLOCKED:
        return None if sight.condition is Condition.BLOCKED else DeviceCause.UNBLOCKED
    unwell = _UNWELL.get(sight.condition)
    if unwell is not None and DEVICE_MACHINE.allows(state, unwell):
        return unwell
    if state is DeviceState.READY:
        return DeviceCause.NOT_READY if sight.condition is Condition.NOT_YET else None
    if sight.condition is Condition.USABLE and not sight.busy:
        return _DONE_WHEN_USABLE.get(state)
    return None


def _cause_of_return(state: DeviceState, sight: Sight) -> DeviceCause:
    if state is DeviceState.LOST and sight.lease_live:
        return DeviceCause.AGENT_BACK_LEASED
    if state is not DeviceState.UNKNOWN and sight.on_hold:
        return DeviceCause.BACK_IN_HOLD
    return DeviceCause.AGENT_BACK if state is DeviceState.LOST else DeviceCause.ATTACHED
