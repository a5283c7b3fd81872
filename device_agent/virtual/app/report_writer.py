"""Reports of one device: written at once, late, after a flush, as retired, about somebody else, or not."""

import asyncio
import json
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from device_agent.virtual.app.app_process import AppProcess
from device_agent.virtual.app.crash_report_writer import crash_report, watchdog_report
from device_agent.virtual.app.jetsam_report_writer import JetsamKill, jetsam_report
from device_agent.virtual.app.report_document import ReportDocument
from device_agent.virtual.device.device import VirtualDevice

CRASH_SIGNALS: Final = frozenset(
    {
        signal.SIGILL,
        signal.SIGTRAP,
        signal.SIGABRT,
        signal.SIGFPE,
        signal.SIGBUS,
        signal.SIGSEGV,
        signal.SIGSYS,
    }
)
RETIRED: Final = "Retired"
_MAX_REPORTS: Final = 100
"""As on a device the oldest go; it also bounds the real disk."""
_NORMAL_DELAY_S: Final = 0.3

JetsamMode = Literal["written", "pending", "retired", "missing", "other-pid", "several"]


@dataclass(frozen=True, slots=True)
class ReportPlan:
    """What becomes of the report of the next jetsam kills."""

    mode: JetsamMode = "written"
    delay_s: float = _NORMAL_DELAY_S


class ReportWriter:
    """Writes reports into the device's folder and says so in its log, as osanalyticshelper does."""

    def __init__(self, device: VirtualDevice) -> None:
        self._device = device
        self._tasks: set[asyncio.Task[None]] = set()
        self.plan = ReportPlan()

    async def close(self) -> None:
        """Reports that are still to come are not written."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def plan_normally(self) -> None:
        """Reports are written again, soon after the kill."""
        self.plan = ReportPlan()

    def jetsam(self, app: AppProcess, reason: str, others: tuple[str, ...] = ()) -> None:
        """The kernel's line now, the report as the plan says. others: victims before the app, by name."""
        kill = JetsamKill.of(app, reason)
        self.say_killed(kill)
        if self.plan.mode == "missing":
            return
        victims = [kill]
        if self.plan.mode == "other-pid":
            # An older process of the same name: a report that fits by name, and not by pid.
            victims = [kill.with_pid(max(2, app.pid - 1))]
        if self.plan.mode == "several" or others:
            victims = [*self._kills(others or ("MobileSafari", "MobileMail"), "vm-pageshortage"), *victims]
        self._write_later(jetsam_report(self._device, victims), self._folder(), self.plan.delay_s)

    def jetsam_of_others(self, names: tuple[str, ...], reason: str) -> None:
        """A report in which the app only is a bystander."""
        kills = self._kills(names, reason)
        for kill in kills:
            self.say_killed(kill)
        if self.plan.mode != "missing":
            self._write_later(jetsam_report(self._device, kills), self._folder(), self.plan.delay_s)

    def crash(self, app: AppProcess, number: signal.Signals) -> None:
        """A report of type 309."""
        document = crash_report(self._device, app, number)
        self._write_later(document, self._device.disk.crash_reports, _NORMAL_DELAY_S)

    def watchdog(self, app: AppProcess) -> None:
        """A report of type 309 that names FRONTBOARD and 0x8badf00d."""
        document = watchdog_report(self._device, app)
        self._write_later(document, self._device.disk.crash_reports, _NORMAL_DELAY_S)

    def say_killed(self, kill: JetsamKill) -> None:
        """The kernel's line of a kill."""
        self._device.log.say_as(
            "kernel",
            f"memorystatus: killing_specific_process pid {kill.pid} [{kill.name}] ({kill.reason} {kill.band})"
            f" {kill.footprint_bytes // 1024}KB - memorystatus_available_pages: 9214",
        )

    def _kills(self, names: tuple[str, ...], reason: str) -> list[JetsamKill]:
        found = [each for each in self._device.processes.system() if each.name in names]
        return [JetsamKill.of(each, reason) for each in found]

    def _folder(self) -> Path:
        disk = self._device.disk
        match self.plan.mode:
            case "pending":
                return disk.pending_reports
            case "retired":
                return disk.crash_reports / RETIRED
            case _:
                return disk.crash_reports

    def _write_later(self, document: ReportDocument, folder: Path, delay_s: float) -> None:
        async def write() -> None:
            await asyncio.sleep(delay_s)
            self._write(document, folder)

        task = asyncio.create_task(write())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _write(self, document: ReportDocument, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        path = _free_name(folder, document.name)
        # Whoever lists the folder sees whole reports only.
        unfinished = path.with_name(f".{path.name}")
        unfinished.write_text(_text(document.header, document.body))
        unfinished.replace(path)
        for old in sorted(folder.glob("*.ips"), key=lambda each: each.stat().st_mtime)[:-_MAX_REPORTS]:
            old.unlink(missing_ok=True)
        self._device.log.say_as(
            "osanalyticshelper",
            f"Saved type '{document.bug_type}({document.log_class})' report (1 of max 25) as"
            f" /var/mobile/Library/Logs/CrashReporter/{path.name}",
        )


def _text(header: Mapping[str, object], body: Mapping[str, object]) -> str:
    return f"{json.dumps(header)}\n{json.dumps(body, indent=2)}\n"


def _free_name(folder: Path, name: str) -> Path:
    """Two reports of one second do not overwrite each other."""
    stem, _, suffix = name.rpartition(".")
    path, number = folder / name, 1
    while path.exists():
        path, number = folder / f"{stem}-{number}.{suffix}", number + 1
    return path
