"""Launch and end of apps on one device: what is refused, the limit that kills, what is left behind."""

import asyncio
import os
import signal
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from contract.ios_app import ATTEMPTS_FOLDER, ENV_MEMORY_LIMIT, RUN_FILE, RunFile
from contract.runtime_link import RUNTIME_LOG_FILE, runtime_arguments
from device_agent.virtual.app.app_process import AppProcess
from device_agent.virtual.app.report_writer import CRASH_SIGNALS, ReportWriter
from device_agent.virtual.device.device import VirtualDevice
from device_agent.virtual.device.disk import resolve_below
from device_agent.virtual.device.process_table import Output
from device_agent.virtual.device.record import InstalledApp
from device_agent.virtual.device.triggers import Progress
from device_agent.virtual.errors import LaunchRefusedError
from device_agent.virtual.link.ports import AppPort

_SPRINGBOARD: Final = "FBSOpenApplicationErrorDomain"
_PROCESS_CONTROL: Final = "com.apple.dt.deviceprocesscontrolservice"
_MAX_RUN_FILE_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class AppCommand:
    """What an app is on this machine: the program, and the folder for its socket (a short path)."""

    program: tuple[str, ...]
    socket_folder: Path


class Apps:
    """Apps of one device that run. At most one of each bundle."""

    def __init__(self, device: VirtualDevice, command: AppCommand, reports: ReportWriter) -> None:
        self._device = device
        self._command = command
        self._reports = reports
        self._running: dict[int, AppProcess] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def running(self) -> list[AppProcess]:
        """In the order of their launch."""
        return list(self._running.values())

    def get(self, pid: int) -> AppProcess | None:
        """None when no app of this pid runs."""
        return self._running.get(pid)

    def of_bundle(self, bundle_id: str) -> list[AppProcess]:
        """Those of one bundle."""
        return [each for each in self._running.values() if each.bundle_id == bundle_id]

    async def launch(
        self, bundle_id: str, environment: Mapping[str, str], *, kill_existing: bool = True
    ) -> AppProcess:
        """Starts an app; LaunchRefusedError says why not. One that runs already is ended, or else stays."""
        installed = self._installed(bundle_id)
        running = self.of_bundle(bundle_id)
        if running and not kill_existing:
            return running[0]
        for each in running:
            await each.kill()
        app = AppProcess(self._device.processes.new_pid(), _executable(installed), bundle_id)
        app.largest_file_bytes = self._device.record.capacity_bytes
        documents = self._device.disk.container(installed.container) / "Documents"
        await self._start(app, environment, documents)
        self._device.log.say_as("SpringBoard", f"[app<{bundle_id}>:{app.pid}] Bootstrap success!")
        await self._device.triggers.advance(Progress.LAUNCHES, 1)
        return app

    async def end_all(self) -> None:
        """Kills every app, without a report: the device goes down."""
        for app in self.running:
            app.killed_for = "shutdown"
        await asyncio.gather(*(app.kill() for app in self.running))
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def kill_for_memory(self, app: AppProcess, reason: str) -> None:
        """As jetsam does: SIGKILL, a line of the kernel, a report if the device writes one."""
        if app.killed_for:
            return
        app.killed_for = "jetsam"
        await app.kill()
        self._reports.jetsam(app, reason)

    async def kill_by_watchdog(self, app: AppProcess) -> None:
        """As SpringBoard does with an app that does not answer: SIGKILL and a report with 0x8badf00d."""
        app.killed_for = "watchdog"
        await app.kill()
        self._reports.watchdog(app)

    def _installed(self, bundle_id: str) -> InstalledApp:
        record = self._device.record
        app = record.apps.get(bundle_id)
        if app is None:
            detail = f"Request to launch {bundle_id} failed. The application is not installed."
            raise LaunchRefusedError(_PROCESS_CONTROL, 2, detail)
        if record.is_locked:
            detail = f"Unable to launch {bundle_id} because the device was not, or could not be, unlocked."
            raise LaunchRefusedError(_SPRINGBOARD, 7, detail)
        expired = app.profile_expires is not None and app.profile_expires <= record.now()
        foreign = app.profile_devices is not None and record.udid not in app.profile_devices
        if expired or foreign or not app.is_developer_trusted:
            detail = (
                f"Unable to launch {bundle_id} because it has an invalid code signature, inadequate"
                " entitlements or its profile has not been explicitly trusted by the user."
            )
            raise LaunchRefusedError(_SPRINGBOARD, 3, detail)
        return app

    async def _start(self, app: AppProcess, given: Mapping[str, str], documents: Path) -> None:
        device = self._device
        run = _run_of_environment(given) or _newest_run(documents)
        socket = self._command.socket_folder / f"{os.urandom(6).hex()}.sock"
        # Without a run there is nothing to do: the app ends by itself for want of a spec.
        attempt = resolve_below(documents, ATTEMPTS_FOLDER if run is None else run.attempt_folder)
        model = resolve_below(documents, "" if run is None else run.model_folder)
        arguments = runtime_arguments(attempt, model, socket)
        app.on_line = lambda line: self._said(app, line)
        app.on_sample = lambda footprint_bytes: self._compare(app, footprint_bytes)
        told = {ENV_MEMORY_LIMIT: str(device.record.memory_limit_bytes), **given}
        environment = {name: value for name, value in os.environ.items() if not name.endswith("_TOKEN")}
        try:
            await app.start([*self._command.program, *arguments], environment | told, documents)
        except OSError as error:
            raise LaunchRefusedError(_PROCESS_CONTROL, 1, f"the app cannot be started: {error}") from error
        self._running[app.pid] = app
        device.processes.add(app)
        if run is not None:
            open_at_s = asyncio.get_running_loop().time() + device.port_delay_s
            device.ports.listen_for_app(run.port, AppPort(app.pid, socket, open_at_s))
        task = asyncio.create_task(app.watch(attempt / RUNTIME_LOG_FILE, self._ended))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: socket.unlink(missing_ok=True))

    def _said(self, app: AppProcess, line: str) -> None:
        self._device.processes.output.say(Output(app.pid, line))
        self._device.log.write(app.name, app.pid, line, subsystem=app.bundle_id)

    def _compare(self, app: AppProcess, footprint_bytes: int) -> None:
        if footprint_bytes > self._device.record.memory_limit_bytes and not app.killed_for:
            self._in_background(self.kill_for_memory(app, "per-process-limit"))

    async def _ended(self, app: AppProcess) -> None:
        device, ended = self._device, app.exit
        assert ended is not None  # watch sets it before it reports
        self._running.pop(app.pid, None)
        device.processes.remove(app.pid)
        device.ports.forget_app(app.pid)
        device.log.say_as(
            "SpringBoard",
            f"[app<{app.bundle_id}>:{app.pid}] Process exited: {_status(ended.code, ended.signal)}",
        )
        if ended.signal in CRASH_SIGNALS and not app.killed_for:
            self._reports.crash(app, signal.Signals(ended.signal))
        device.processes.exits.say(ended)

    def _in_background(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _executable(app: InstalledApp) -> str:
    return str(app.info.get("CFBundleExecutable", app.bundle_id.rsplit(".", 1)[-1]))


def _status(code: int | None, number: int | None) -> str:
    return f"exit({code})" if number is None else f"signal({number})"


def _run_of_environment(environment: Mapping[str, str]) -> RunFile | None:
    try:
        return RunFile.of_environment(environment)
    except ValidationError:
        return None


def _newest_run(documents: Path) -> RunFile | None:
    """What the newest run file says: the app was started without the environment, by a tap or by iOS."""
    newest: tuple[datetime, Path] | None = None
    with suppress(FileNotFoundError):
        for folder in (documents / ATTEMPTS_FOLDER).iterdir():
            with suppress(OSError):
                found = (folder / RUN_FILE).stat()
                at = datetime.fromtimestamp(found.st_mtime, UTC)
                if found.st_size <= _MAX_RUN_FILE_BYTES and (newest is None or at > newest[0]):
                    newest = at, folder / RUN_FILE
    if newest is None:
        return None
    try:
        return RunFile.model_validate_json(newest[1].read_bytes())
    except (OSError, ValidationError):
        return None
