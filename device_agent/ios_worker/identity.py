"""Who the device is and how it is: from lockdown and diagnostics, without any developer service."""

import contextlib
from typing import Any, Final

from pymobiledevice3.exceptions import PyMobileDevice3Exception
from pymobiledevice3.lockdown import UsbmuxLockdownClient
from pymobiledevice3.services.diagnostics import DiagnosticsService

from contract.ios_app import VIRTUAL_DOMAIN
from device_agent.ios_worker.faults import kind_of
from device_agent.ios_worker.files import Progress
from device_agent.ios_worker.protocol import Conditions, Description, Nothing, WorkerErrorKind
from device_agent.ios_worker.session import Session, value_of, version_of

_DEVELOPER_MODE_SINCE: Final = version_of("16.0")
_BATTERY: Final = "com.apple.mobile.battery"
_DISK: Final = "com.apple.disk_usage"
# Causes that concern the device as a whole; anything else only means that this value is not to be had.
_DEVICE_WIDE: Final = frozenset(
    {
        *(WorkerErrorKind.DISCONNECTED, WorkerErrorKind.STALLED),
        *(WorkerErrorKind.UNTRUSTED, WorkerErrorKind.DENIED),
    }
)


class Identity:
    """The calls that only read."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def describe(self, nothing: Nothing, progress: Progress) -> Description:
        """Fresh: locked, clock and boot id change while a client is kept."""
        client = await self._session.lockdown()
        found = await client.get_value()
        values: dict[str, Any] = found if isinstance(found, dict) else {}
        virtual = await value_of(client, VIRTUAL_DOMAIN, None)
        emulated: dict[str, Any] = virtual if isinstance(virtual, dict) else {}
        memory_bytes = emulated.get("MemoryBytes")
        return Description(
            device_id=str(values.get("UniqueDeviceID", self._session.udid)),
            device_model=str(values.get("ProductType", "unknown")),
            os_name=_os_name(values),
            os_version=str(values.get("ProductVersion", "0")),
            os_build=str(values.get("BuildVersion", "")),
            paired=bool(client.paired),
            locked=_flag(values.get("PasswordProtected")),
            developer_mode=await self._developer_mode(client),
            boot_id=str(values.get("BootSessionID", "")),
            clock_s=_number(values.get("TimeIntervalSince1970")),
            utc_offset_s=_number(values.get("TimeZoneOffsetFromUTC")) or 0.0,
            virtual=emulated.get("Virtual") is True,
            memory_bytes=int(memory_bytes) if isinstance(memory_bytes, int) else None,
        )

    async def conditions(self, nothing: Nothing, progress: Progress) -> Conditions:
        """Each value by itself: one that a device or an iOS does not have must not hide the others."""
        client = await self._session.lockdown()
        battery = await value_of(client, _BATTERY, None)
        charge: dict[str, Any] = battery if isinstance(battery, dict) else {}
        power = await _power_source(client)
        emulated = await value_of(client, VIRTUAL_DOMAIN, None)
        said: dict[str, Any] = emulated if isinstance(emulated, dict) else {}
        centi_celsius = _number(power.get("Temperature"))
        free_bytes = _number(await value_of(client, _DISK, "AmountDataAvailable"))
        level = _number(charge.get("BatteryCurrentCapacity", power.get("CurrentCapacity")))
        thermal = said.get("ThermalState")
        return Conditions(
            free_bytes=None if free_bytes is None else int(free_bytes),
            battery_percent=level,
            charging=_flag(charge.get("BatteryIsCharging", power.get("IsCharging"))),
            temperature_celsius=None if centi_celsius is None else centi_celsius / 100,
            low_power_mode=_flag(said.get("LowPowerMode")),
            thermal=thermal if thermal in {"nominal", "fair", "serious", "critical"} else "unknown",
        )

    async def _developer_mode(self, client: UsbmuxLockdownClient) -> bool | None:
        if version_of(client.product_version) < _DEVELOPER_MODE_SINCE:
            return None
        return _flag(await value_of(client, "com.apple.security.mac.amfi", "DeveloperModeStatus"))


async def _power_source(client: UsbmuxLockdownClient) -> dict[str, Any]:
    """IOPMPowerSource; a connection of its own each time, since a cut one could answer the wrong question."""
    try:
        async with DiagnosticsService(client) as diagnostics:
            found = await diagnostics.get_battery()
    except PyMobileDevice3Exception as error:
        if kind_of(error) in _DEVICE_WIDE:
            raise
        return {}
    return found if isinstance(found, dict) else {}


def _os_name(values: dict[str, Any]) -> str:
    name = str(values.get("ProductName", ""))
    if name in {"", "iPhone OS"}:
        return "iPadOS" if str(values.get("DeviceClass", "")) == "iPad" else "iOS"
    return name


def _flag(value: object) -> bool | None:
    return bool(value) if isinstance(value, bool | int) else None


def _number(value: object) -> float | None:
    with contextlib.suppress(TypeError, ValueError):
        return float(value)  # type: ignore[arg-type]  # whatever a device sends; a wrong type is suppressed
    return None
