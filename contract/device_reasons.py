"""Words in `DeviceReport.reasons` on which agent and controller agree. Any other word is one for a person."""

from enum import StrEnum
from typing import Final

from contract.failures import FailureReason


class DeviceReason(StrEnum):
    """Why a device is not ready. Beside these, the values of FailureReason are used."""

    STARTING = "starting"
    PREPARING = "preparing"
    CHECKING = "checking"
    CLEANING = "cleaning"
    RECOVERING = "recovering"
    BUSY = "busy"
    CALIBRATING = "calibrating"
    """Its best engine options are being measured: anything beside would spoil them."""
    HOT = "hot"
    COOL_DOWN = "cool_down"
    """It rests for a while after a run, whatever its sensors say."""
    CHARGING = "charging"
    """Above the floor, but not yet at the level from which it may start again."""
    LOW_POWER_MODE = "low_power_mode"
    SCREEN_OFF = "screen_off"


PASSING_REASONS: Final = frozenset(
    {
        DeviceReason.STARTING.value,
        DeviceReason.PREPARING.value,
        DeviceReason.CHECKING.value,
        DeviceReason.CLEANING.value,
        DeviceReason.RECOVERING.value,
        DeviceReason.BUSY.value,
        DeviceReason.CALIBRATING.value,
        FailureReason.TUNNEL_LOST.value,
        FailureReason.DDI_MOUNT.value,
        FailureReason.TRANSPORT_LOST.value,
    }
)
"""They pass by the agent's own work."""
HEAT_REASONS: Final = frozenset(
    {DeviceReason.HOT.value, DeviceReason.COOL_DOWN.value, FailureReason.THERMAL_ABORT.value}
)
"""They pass by waiting: the device is `cooling`."""
BATTERY_REASONS: Final = frozenset({DeviceReason.CHARGING.value, FailureReason.BATTERY_LOW.value})
"""They pass by waiting while it is plugged in: the device is `charging`."""
