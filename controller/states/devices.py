"""The table of devices. Drawn in docs/devices.md."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from contract.states import DeviceState
from controller.states.machine import Machine
from controller.states.times import FarmTimes


class DeviceCause(StrEnum):
    """Why a device changes its state."""

    ATTACHED = "attached"
    BLOCKED = "blocked"
    UNBLOCKED = "unblocked"
    PREPARED = "prepared"
    PREPARING_OVERDUE = "preparing_overdue"
    CHECK_PASSED = "check_passed"
    CHECK_FAILED = "check_failed"
    CHECK_EXHAUSTED = "check_exhausted"
    CHECK_DUE = "check_due"
    NOT_READY = "not_ready"
    HOT = "hot"
    BATTERY_LOW = "battery_low"
    CONDITION_MET = "condition_met"
    CONDITION_OVERDUE = "condition_overdue"
    CLAIMED = "claimed"
    RESERVED = "reserved"
    ATTEMPT_ENDED = "attempt_ended"
    ATTEMPT_FAULTED = "attempt_faulted"
    LEASE_EXPIRED = "lease_expired"
    LEASE_REVOKED = "lease_revoked"
    RESERVATION_EXPIRED = "reservation_expired"
    HOLD_OVER = "hold_over"
    CLEANED = "cleaned"
    CLEANING_OVERDUE = "cleaning_overdue"
    RECOVERED = "recovered"
    RECOVERY_EXHAUSTED = "recovery_exhausted"
    DETACHED = "detached"
    AGENT_OFFLINE = "agent_offline"
    AGENT_BACK = "agent_back"
    AGENT_BACK_LEASED = "agent_back_leased"
    BACK_IN_HOLD = "back_in_hold"
    MOVED = "moved"
    RECHECK_DUE = "recheck_due"
    QUARANTINE_ORDERED = "quarantine_ordered"
    RELEASE_ORDERED = "release_ordered"
    MAINTENANCE_ORDERED = "maintenance_ordered"
    RETIREMENT_ORDERED = "retirement_ordered"


_D, _C = DeviceState, DeviceCause

# A person's decision, or a verdict on the device, outlives a pulled cable and a restarted agent.
_KEPT: Final = (_D.QUARANTINED, _D.MAINTENANCE, _D.RESERVED, _D.RETIRED)
_WORKING: Final = tuple(state for state in _D if state not in {*_KEPT, _D.ABSENT, _D.LOST})
# Waiting for a condition is not work that takes too long: a device that was plugged in hot, or whose run was
# ended by heat, must not run into the deadline of preparing or recovering and be quarantined for it.
_MUST_BE_COOL: Final = (_D.READY, _D.PREPARING, _D.CHECKING, _D.CLEANING, _D.RECOVERING)
# Devices that a person can take out at once; a leased one is drained first.
_REMOVABLE: Final = tuple(state for state in _D if state not in {_D.LEASED, _D.RETIRED})


def _each(
    states: tuple[DeviceState, ...], cause: DeviceCause, target: DeviceState
) -> dict[tuple[DeviceState, DeviceCause], DeviceState]:
    return {(state, cause): target for state in states if state != target}


DEVICE_MACHINE: Final = Machine(
    name="device",
    initial=_D.UNKNOWN,
    transitions=MappingProxyType(
        {
            **_each((_D.UNKNOWN, _D.ABSENT), _C.ATTACHED, _D.PREPARING),
            **_each(
                (_D.PREPARING, _D.CHECKING, _D.READY, _D.CLEANING, _D.COOLING, _D.CHARGING, _D.RECOVERING),
                _C.BLOCKED,
                _D.BLOCKED,
            ),
            (_D.BLOCKED, _C.UNBLOCKED): _D.PREPARING,
            (_D.PREPARING, _C.PREPARED): _D.CHECKING,
            (_D.PREPARING, _C.PREPARING_OVERDUE): _D.QUARANTINED,
            (_D.CHECKING, _C.CHECK_PASSED): _D.READY,
            (_D.CHECKING, _C.CHECK_FAILED): _D.RECOVERING,
            (_D.CHECKING, _C.CHECK_EXHAUSTED): _D.QUARANTINED,
            (_D.READY, _C.CHECK_DUE): _D.CHECKING,
            (_D.READY, _C.NOT_READY): _D.PREPARING,
            **_each(_MUST_BE_COOL, _C.HOT, _D.COOLING),
            **_each(_MUST_BE_COOL, _C.BATTERY_LOW, _D.CHARGING),
            **_each((_D.COOLING, _D.CHARGING), _C.CONDITION_MET, _D.READY),
            **_each((_D.COOLING, _D.CHARGING), _C.CONDITION_OVERDUE, _D.QUARANTINED),
            (_D.READY, _C.CLAIMED): _D.LEASED,
            (_D.READY, _C.RESERVED): _D.RESERVED,
            (_D.LEASED, _C.ATTEMPT_ENDED): _D.CLEANING,
            (_D.LEASED, _C.ATTEMPT_FAULTED): _D.RECOVERING,
            (_D.LEASED, _C.LEASE_EXPIRED): _D.HELD,
            (_D.LEASED, _C.LEASE_REVOKED): _D.HELD,
            (_D.RESERVED, _C.RESERVATION_EXPIRED): _D.HELD,
            (_D.HELD, _C.HOLD_OVER): _D.CLEANING,
            (_D.CLEANING, _C.CLEANED): _D.READY,
            (_D.CLEANING, _C.CLEANING_OVERDUE): _D.RECOVERING,
            (_D.RECOVERING, _C.RECOVERED): _D.PREPARING,
            **_each((_D.RECOVERING, _D.HELD), _C.RECOVERY_EXHAUSTED, _D.QUARANTINED),
            **_each(_WORKING, _C.DETACHED, _D.ABSENT),
            **_each(_WORKING, _C.AGENT_OFFLINE, _D.LOST),
            (_D.LOST, _C.AGENT_BACK): _D.PREPARING,
            (_D.LOST, _C.AGENT_BACK_LEASED): _D.LEASED,
            **_each((_D.LOST, _D.ABSENT), _C.BACK_IN_HOLD, _D.HELD),
            **_each((*_WORKING, _D.LOST, _D.ABSENT), _C.MOVED, _D.PREPARING),
            (_D.QUARANTINED, _C.RECHECK_DUE): _D.CHECKING,
            **_each(_REMOVABLE, _C.QUARANTINE_ORDERED, _D.QUARANTINED),
            **_each((_D.QUARANTINED, _D.MAINTENANCE), _C.RELEASE_ORDERED, _D.CHECKING),
            (_D.RESERVED, _C.RELEASE_ORDERED): _D.CLEANING,
            **_each(_REMOVABLE, _C.MAINTENANCE_ORDERED, _D.MAINTENANCE),
            **_each(_REMOVABLE, _C.RETIREMENT_ORDERED, _D.RETIRED),
        }
    ),
    meanings=MappingProxyType(
        {
            _C.ATTACHED: "its agent sees it",
            _C.BLOCKED: "a person must do something at the device; the reasons say what",
            _C.UNBLOCKED: "the reasons are gone",
            _C.PREPARED: "the agent says that it can be used",
            _C.PREPARING_OVERDUE: "it did not become usable in time",
            _C.CHECK_PASSED: "the agent's health check passed",
            _C.CHECK_FAILED: "the check did not pass in time; recovery may help",
            _C.CHECK_EXHAUSTED: "the check did not pass, and recovery was tried often enough",
            _C.CHECK_DUE: "its operating system has changed",
            _C.NOT_READY: "the agent no longer calls it ready and gives no reason for a person",
            _C.HOT: "too warm to measure on",
            _C.BATTERY_LOW: "too little battery to measure on",
            _C.CONDITION_MET: "cool again, or charged",
            _C.CONDITION_OVERDUE: "it neither cooled nor charged in time: port or sensor",
            _C.CLAIMED: "its agent claimed an attempt; the fence rises",
            _C.RESERVED: "a person takes it for a while; the fence rises",
            _C.ATTEMPT_ENDED: "the attempt's result was accepted",
            _C.ATTEMPT_FAULTED: "the same, and the device was at fault",
            _C.LEASE_EXPIRED: "no renewal came within the ttl",
            _C.LEASE_REVOKED: "the controller ended the attempt at a deadline",
            _C.RESERVATION_EXPIRED: "the reservation's time is over",
            _C.HOLD_OVER: "the hold is over and the agent says that the device is idle",
            _C.CLEANED: "the agent says that it is ready again",
            _C.CLEANING_OVERDUE: "cleaning took too long",
            _C.RECOVERED: "the agent says that it is ready again",
            _C.RECOVERY_EXHAUSTED: "it did not recover in time, or failed too often in a row",
            _C.DETACHED: "its agent no longer sees it",
            _C.AGENT_OFFLINE: "nothing was heard of its agent",
            _C.AGENT_BACK: "its agent is back",
            _C.AGENT_BACK_LEASED: "its agent is back and the lease still lives",
            _C.BACK_IN_HOLD: "it is back, but the previous lease holder may still be using it",
            _C.MOVED: "another agent sees it, and its own has lost it; the fence rises",
            _C.RECHECK_DUE: "an automatic check after 1, 6 and 24 hours",
            _C.QUARANTINE_ORDERED: "a person takes it out",
            _C.RELEASE_ORDERED: "a person puts it back",
            _C.MAINTENANCE_ORDERED: "a person works on it",
            _C.RETIREMENT_ORDERED: "a person removes it for good",
        }
    ),
)


@dataclass(frozen=True, slots=True)
class DeviceDeadline:
    """How long a state may last, and what happens then."""

    period_s: Callable[[FarmTimes], float]
    cause: DeviceCause


# HELD and RESERVED set a deadline of their own, QUARANTINED follows FarmTimes.recheck_s; the others may
# last: READY waits for work, BLOCKED and MAINTENANCE for a person, ABSENT and LOST for the device.
DEVICE_DEADLINES: Final = MappingProxyType(
    {
        _D.PREPARING: DeviceDeadline(lambda times: times.preparing_s, _C.PREPARING_OVERDUE),
        _D.CHECKING: DeviceDeadline(lambda times: times.checking_s, _C.CHECK_FAILED),
        _D.COOLING: DeviceDeadline(lambda times: times.condition_s, _C.CONDITION_OVERDUE),
        _D.CHARGING: DeviceDeadline(lambda times: times.condition_s, _C.CONDITION_OVERDUE),
        _D.CLEANING: DeviceDeadline(lambda times: times.cleaning_s, _C.CLEANING_OVERDUE),
        _D.RECOVERING: DeviceDeadline(lambda times: times.recovering_s, _C.RECOVERY_EXHAUSTED),
    }
)
