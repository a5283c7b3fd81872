"""Faults of the cable and of usbmuxd's list."""

import asyncio
from collections.abc import Mapping
from typing import Final

from contract.virtual_devices import Option
from device_agent.virtual.emulator import Emulator, Unit
from device_agent.virtual.errors import NotPossibleNowError


async def _detach(emulator: Emulator, unit: Unit, options: Mapping[str, Option]) -> None:
    entries = emulator.usbmuxd.entries_of(unit.device)
    if not entries:
        raise NotPossibleNowError(f"{unit.device.udid} is not attached")
    for entry in entries:
        await emulator.usbmuxd.detach(entry, notice_first=options["order"] == "notice-first")
    unit.device.end_connections()
    if options["app"] == "ends":
        await unit.apps.end_all()
    if float(options["for_s"]) > 0:

        async def attach_again() -> None:
            if not emulator.usbmuxd.entries_of(unit.device):
                emulator.usbmuxd.attach(unit.device)

        unit.device.triggers.arm_after(float(options["for_s"]), attach_again)


async def _attach(emulator: Emulator, unit: Unit, options: Mapping[str, Option]) -> None:
    kind: Final = "USB" if options["kind"] == "USB" else "Network"
    if any(each.kind == kind for each in emulator.usbmuxd.entries_of(unit.device)):
        raise NotPossibleNowError(f"{unit.device.udid} is attached already")
    emulator.usbmuxd.attach(unit.device, kind)


async def _duplicate(emulator: Emulator, unit: Unit, options: Mapping[str, Option]) -> None:
    if options["kind"] == "Network":
        emulator.usbmuxd.attach(unit.device, "Network")
    else:
        emulator.usbmuxd.attach(emulator.add_clone(unit).device)


async def _stall(_: Emulator, unit: Unit, options: Mapping[str, Option]) -> None:
    unit.device.link.stall()
    if float(options["for_s"]) > 0:

        async def end() -> None:
            unit.device.link.resume()

        unit.device.triggers.arm_after(float(options["for_s"]), end)


async def _resume(_: Emulator, unit: Unit, __: Mapping[str, Option]) -> None:
    unit.device.link.resume()


async def _throttle(_: Emulator, unit: Unit, options: Mapping[str, Option]) -> None:
    unit.device.link.bytes_per_s = max(0, int(options["bytes_per_s"]))
    unit.device.link.latency_s = max(0.0, float(options["latency_s"]))


async def _tunnel_death(_: Emulator, unit: Unit, __: Mapping[str, Option]) -> None:
    if not unit.device.tunnels:
        raise NotPossibleNowError(f"{unit.device.udid} has no tunnel")
    unit.device.end_tunnels()
    await asyncio.sleep(0)


async def _clear(_: Emulator, unit: Unit, __: Mapping[str, Option]) -> None:
    link = unit.device.link
    link.bytes_per_s, link.latency_s = 0, 0.0
    link.resume()
    unit.device.triggers.disarm()
    unit.device.port_delay_s = unit.device.sample_interval_floor_s = 0.0
    unit.reports.plan_normally()
    unit.installer.refuse_next = None


LINK_FAULTS: Final = {
    "detach": _detach,
    "attach": _attach,
    "duplicate": _duplicate,
    "stall": _stall,
    "resume": _resume,
    "throttle": _throttle,
    "tunnel-death": _tunnel_death,
    "clear": _clear,
}
