"""Faults of the app: every way in which it can end or stop answering."""

import signal
from collections.abc import Mapping
from typing import Final, cast

from contract.virtual_devices import Option
from device_agent.virtual.app.app_process import AppProcess
from device_agent.virtual.app.report_writer import JetsamMode, ReportPlan
from device_agent.virtual.emulator import Emulator, Unit
from device_agent.virtual.errors import NotPossibleNowError

_SUSPENDED: Final = ("MobileSafari", "MobileMail")


def _running(unit: Unit) -> AppProcess:
    if not unit.apps.running:
        raise NotPossibleNowError(f"no app runs on {unit.device.udid}")
    return unit.apps.running[-1]


def _plan(options: Mapping[str, Option]) -> ReportPlan:
    # The options were checked against the choices of the table.
    mode = cast("JetsamMode", str(options["report"]))
    return ReportPlan(mode, max(0.0, float(options["report_delay_s"])))


async def _crash(_: Emulator, unit: Unit, options: Mapping[str, Option]) -> None:
    await _running(unit).kill(signal.Signals[str(options["signal"])])


async def _watchdog(_: Emulator, unit: Unit, __: Mapping[str, Option]) -> None:
    await unit.apps.kill_by_watchdog(_running(unit))


async def _kill(_: Emulator, unit: Unit, __: Mapping[str, Option]) -> None:
    await _running(unit).kill()


async def _exit(_: Emulator, unit: Unit, __: Mapping[str, Option]) -> None:
    _running(unit).send(signal.SIGTERM)


async def _freeze(_: Emulator, unit: Unit, __: Mapping[str, Option]) -> None:
    _running(unit).send(signal.SIGSTOP)


async def _thaw(_: Emulator, unit: Unit, __: Mapping[str, Option]) -> None:
    _running(unit).send(signal.SIGCONT)


async def _jetsam(_: Emulator, unit: Unit, options: Mapping[str, Option]) -> None:
    app, standing = _running(unit), unit.reports.plan
    unit.reports.plan = _plan(options)
    try:
        await unit.apps.kill_for_memory(app, str(options["reason"]))
    finally:
        unit.reports.plan = standing


async def _reports(_: Emulator, unit: Unit, options: Mapping[str, Option]) -> None:
    unit.reports.plan = _plan(options)


async def _pressure(_: Emulator, unit: Unit, options: Mapping[str, Option]) -> None:
    app = _running(unit) if options["app"] == "killed" else None
    unit.reports.jetsam_of_others(_SUSPENDED, "vm-pageshortage")
    for process in unit.device.processes.system():
        if process.name in _SUSPENDED:
            unit.device.processes.remove(process.pid)
    if app is not None:
        await unit.apps.kill_for_memory(app, "vm-pageshortage")


async def _memory_limit(_: Emulator, unit: Unit, options: Mapping[str, Option]) -> None:
    unit.device.record.memory_limit_bytes = max(1 << 20, int(options["limit_bytes"]))
    unit.device.save()


async def _port_delay(_: Emulator, unit: Unit, options: Mapping[str, Option]) -> None:
    unit.device.port_delay_s = max(0.0, float(options["delay_s"]))


async def _sysmon(_: Emulator, unit: Unit, options: Mapping[str, Option]) -> None:
    unit.device.sample_interval_floor_s = max(0.0, float(options["interval_s"]))


APP_FAULTS: Final = {
    "crash": _crash,
    "watchdog": _watchdog,
    "kill": _kill,
    "exit": _exit,
    "freeze": _freeze,
    "thaw": _thaw,
    "jetsam": _jetsam,
    "reports": _reports,
    "pressure": _pressure,
    "memory-limit": _memory_limit,
    "port-delay": _port_delay,
    "sysmon": _sysmon,
}
