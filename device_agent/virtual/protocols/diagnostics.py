"""diagnostics_relay: battery and other registers, restart, sleep."""

from collections.abc import Callable
from typing import Any, Final

from device_agent.virtual.device.catalogue import SystemVersion
from device_agent.virtual.device.device import VirtualDevice
from device_agent.virtual.link.wire import Wire

_NO_MOBILE_GESTALT: Final = SystemVersion(17, 4)
_DESIGN_CAPACITY_MAH: Final = 3500


async def serve_diagnostics(device: VirtualDevice, restart: Callable[[], None], wire: Wire) -> None:
    """Requests until Goodbye. A restart happens when this connection closes, as on a real device."""
    restarts = False
    try:
        while True:
            query = await wire.receive_plist()
            request = str(query.get("Request"))
            await wire.send_plist(_answer(device, request, query))
            if request == "Goodbye":
                return
            restarts = restarts or request in ("Restart", "Shutdown")
    finally:
        if restarts:
            restart()


def _answer(device: VirtualDevice, request: str, query: dict[str, Any]) -> dict[str, Any]:
    match request:
        case "IORegistry":
            return {"Status": "Success", "Diagnostics": {"IORegistry": _registry(device, query)}}
        case "GasGauge" | "All":
            return {"Status": "Success", "Diagnostics": {"GasGauge": _gas_gauge(device)}}
        case "MobileGestalt":
            is_gone = device.record.version >= _NO_MOBILE_GESTALT
            told = {"Status": "MobileGestaltDeprecated" if is_gone else "Success"}
            return {"Status": "Success", "Diagnostics": {"MobileGestalt": told}}
        case "Restart" | "Shutdown" | "Sleep" | "Goodbye":
            return {"Status": "Success"}
        case _:
            return {"Status": "UnknownRequest"}


def _registry(device: VirtualDevice, query: dict[str, Any]) -> dict[str, Any]:
    battery = device.record.battery
    if query.get("EntryClass") != "IOPMPowerSource" and query.get("EntryName") != "AppleSmartBattery":
        return {}
    return {
        "IOClass": "AppleSmartBattery",
        "BatteryInstalled": True,
        "CurrentCapacity": battery.level_percent,
        "MaxCapacity": 100,
        "AppleRawCurrentCapacity": _DESIGN_CAPACITY_MAH * battery.level_percent // 100,
        "AppleRawMaxCapacity": _DESIGN_CAPACITY_MAH,
        "NominalChargeCapacity": _DESIGN_CAPACITY_MAH,
        "DesignCapacity": _DESIGN_CAPACITY_MAH,
        "CycleCount": battery.cycle_count,
        "IsCharging": battery.is_charging,
        "FullyCharged": battery.level_percent == 100,
        "ExternalConnected": True,
        # In hundredths of a degree.
        "Temperature": round(battery.temperature_c * 100),
        "VirtualTemperature": round(battery.temperature_c * 100),
        "Voltage": 4100,
        "InstantAmperage": 350 if battery.is_charging else -410,
        "Serial": device.record.serial_number,
    }


def _gas_gauge(device: VirtualDevice) -> dict[str, Any]:
    return {
        "CycleCount": device.record.battery.cycle_count,
        "DesignCapacity": _DESIGN_CAPACITY_MAH,
        "FullChargeCapacity": _DESIGN_CAPACITY_MAH,
        "Status": "Success",
    }
