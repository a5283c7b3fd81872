"""Faults of the device's own state: lock, trust, disk, restart, developer mode, battery, heat, signing."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final, cast

from contract.ios_app import BUNDLE_ID
from contract.virtual_devices import Option
from device_agent.virtual.device.record import InstalledApp, ThermalState, Trust
from device_agent.virtual.emulator import Emulator, Restart, Unit
from device_agent.virtual.errors import NotPossibleNowError, PackageError

_LOCK_NOTIFICATION: Final = "com.apple.springboard.lockstate"
_THERMAL_NOTIFICATION: Final = "com.apple.system.thermalpressurelevel"
_LOW_POWER_NOTIFICATION: Final = "com.apple.system.lowpowermode"
_INSTALL_REFUSED: Final = (
    "Failed to verify code signature : 0xe8008015"
    " (A valid provisioning profile for this executable was not found.)"
)


async def _lock(_: Emulator, unit: Unit, __: Mapping[str, Option]) -> None:
    unit.device.record.is_locked = True
    unit.device.save()
    unit.device.notifications.say(_LOCK_NOTIFICATION)


async def _unlock(_: Emulator, unit: Unit, __: Mapping[str, Option]) -> None:
    unit.device.record.is_locked = False
    unit.device.record.was_unlocked_since_boot = True
    unit.device.save()
    unit.device.notifications.say(_LOCK_NOTIFICATION)


async def _trust(_: Emulator, unit: Unit, options: Mapping[str, Option]) -> None:
    # The options were checked against the choices of the table.
    unit.device.record.trust = cast("Trust", str(options["answer"]))
    unit.device.save()


async def _untrust(_: Emulator, unit: Unit, __: Mapping[str, Option]) -> None:
    unit.device.record.trust = "prompt"
    for host_id in list(unit.device.record.hosts):
        unit.device.forget_host(host_id)
    unit.device.save()


async def _fill(_: Emulator, unit: Unit, options: Mapping[str, Option]) -> None:
    unit.device.disk.leave_free(max(0, int(options["free_bytes"])))
    unit.device.save()


async def _reboot(emulator: Emulator, unit: Unit, options: Mapping[str, Option]) -> None:
    await emulator.restart(
        unit,
        Restart(
            downtime_s=max(0.0, float(options["downtime_s"])),
            clock_jump_s=float(options["clock_jump_s"]),
            comes_back_locked=options["comes_back"] == "locked",
        ),
    )


async def _developer_mode(_: Emulator, unit: Unit, options: Mapping[str, Option]) -> None:
    unit.device.record.developer_mode = options["mode"] == "on"
    unit.device.save()


async def _image(_: Emulator, unit: Unit, options: Mapping[str, Option]) -> None:
    unit.device.record.image_mounted = options["image"] == "mounted"
    unit.device.record.has_image_manifest = options["ticket"] == "kept"
    unit.device.save()


async def _battery(_: Emulator, unit: Unit, options: Mapping[str, Option]) -> None:
    battery = unit.device.record.battery
    battery.level_percent = min(100, max(0, int(options["level_percent"])))
    battery.is_charging = bool(options["is_charging"])
    unit.device.save()


async def _thermal(_: Emulator, unit: Unit, options: Mapping[str, Option]) -> None:
    record = unit.device.record
    record.thermal_state = cast("ThermalState", str(options["thermal_state"]))
    record.battery.temperature_c = min(120.0, max(-40.0, float(options["temperature_c"])))
    unit.device.save()
    unit.device.notifications.say(_THERMAL_NOTIFICATION)


async def _low_power(_: Emulator, unit: Unit, options: Mapping[str, Option]) -> None:
    unit.device.record.low_power_mode = options["mode"] == "on"
    unit.device.save()
    unit.device.notifications.say(_LOW_POWER_NOTIFICATION)


async def _provisioning(_: Emulator, unit: Unit, options: Mapping[str, Option]) -> None:
    if options["kind"] == "install-refused":
        unit.installer.refuse_next = PackageError("ApplicationVerificationFailed", _INSTALL_REFUSED)
        return
    app = unit.device.record.apps.get(BUNDLE_ID)
    if app is None:
        raise NotPossibleNowError(f"{BUNDLE_ID} is not installed on {unit.device.udid}")
    _set_profile(unit, app, str(options["kind"]))
    unit.device.save()


def _set_profile(unit: Unit, app: InstalledApp, kind: str) -> None:
    now = unit.device.record.now()
    app.profile_expires = now + timedelta(days=300)
    app.profile_devices = None
    app.is_developer_trusted = True
    match kind:
        case "expired":
            app.profile_expires = now - timedelta(days=1)
        case "foreign":
            app.profile_devices = ("00008030-000000000000002E",)
        case "untrusted":
            app.is_developer_trusted = False


DEVICE_FAULTS: Final = {
    "lock": _lock,
    "unlock": _unlock,
    "trust": _trust,
    "untrust": _untrust,
    "fill": _fill,
    "reboot": _reboot,
    "developer-mode": _developer_mode,
    "image": _image,
    "battery": _battery,
    "thermal": _thermal,
    "low-power": _low_power,
    "provisioning": _provisioning,
}
