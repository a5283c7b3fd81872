"""The instruments server: what developer tools start and watch on a device."""

import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from device_agent.virtual.app.apps import Apps
from device_agent.virtual.device.device import VirtualDevice
from device_agent.virtual.device.process_table import DeviceProcess
from device_agent.virtual.errors import LaunchRefusedError
from device_agent.virtual.link.wire import Wire
from device_agent.virtual.protocols.dtx import Channel, on_invoke, refusal, serve_dtx
from device_agent.virtual.protocols.sysmontap import PROCESS_ATTRIBUTES, SYSTEM_ATTRIBUTES, SysmonTap

_SERVER: Final = "com.apple.instruments.server.services."
_SIGKILL: Final = 9


class InstrumentsHost:
    """What the channels of one connection work on."""

    def __init__(self, device: VirtualDevice, apps: Apps) -> None:
        self.device = device
        self.apps = apps


class DeviceInfo(Channel):
    """deviceinfo: lists and attributes."""

    IDENTIFIER = f"{_SERVER}deviceinfo"

    @on_invoke("sysmonProcessAttributes")
    async def process_attributes(self) -> list[str]:
        """Names that sysmontap can be asked for."""
        return list(PROCESS_ATTRIBUTES)

    @on_invoke("sysmonSystemAttributes")
    async def system_attributes(self) -> list[str]:
        """Names that sysmontap can be asked for."""
        return list(SYSTEM_ATTRIBUTES)

    @on_invoke("runningProcesses")
    async def running_processes(self) -> list[dict[str, Any]]:
        """All, with their bundle where they have one."""
        return [_listed(each) for each in self.host.device.processes.all()]

    @on_invoke("isRunningPid:")
    async def is_running(self, pid: Any) -> int:
        """1 or 0."""
        return int(self.host.device.processes.get(int(pid)) is not None)

    @on_invoke("execnameForPid:")
    async def executable(self, pid: Any) -> str:
        """Its path, "" when there is none."""
        process = self.host.device.processes.get(int(pid))
        return f"/virtual/{process.name}" if process is not None else ""

    @on_invoke("systemInformation")
    async def system_information(self) -> dict[str, Any]:
        """What Xcode shows."""
        record = self.host.device.record
        return {
            "_deviceDescription": record.device_name,
            "_deviceDisplayName": record.device_name,
            "_deviceIdentifier": record.udid,
            "_deviceVersion": record.version.build,
            "_productType": record.product_type,
            "_productVersion": str(record.version),
        }

    @on_invoke("hardwareInformation")
    async def hardware_information(self) -> dict[str, Any]:
        return {"numberOfCpus": 6, "numberOfPhysicalCpus": 6, "hwCPUtype": 16777228}

    @on_invoke("machTimeInfo")
    async def mach_time(self) -> list[int]:
        """Now, and the factor to nanoseconds, which is 1 here."""
        now_ns = time.monotonic_ns()
        return [now_ns, 1, 1, now_ns, now_ns]


class ProcessControl(Channel):
    """processcontrol: launch, signals, output and exit of apps."""

    IDENTIFIER = f"{_SERVER}processcontrol"

    def __init__(self, context: Any) -> None:
        super().__init__(context)
        self._observed: set[int] = set()
        self.in_background(self._follow_exits())
        self.in_background(self._follow_output())

    @on_invoke("launchSuspendedProcessWithDevicePath:bundleIdentifier:environment:arguments:options:")
    async def launch(
        self, path: Any, bundle_id: str, environment: dict[str, Any], arguments: Any, options: dict[str, Any]
    ) -> int:
        """The pid; an NSError when the device refuses. Arguments and path mean nothing to the app."""
        given = {str(name): str(value) for name, value in (environment or {}).items()}
        kill_existing = bool((options or {}).get("KillExisting", True))
        try:
            app = await self.host.apps.launch(str(bundle_id), given, kill_existing=kill_existing)
        except (LaunchRefusedError, PermissionError) as error:
            raise _as_refusal(error) from error
        # The device observes what it launched for a client, without being asked.
        self._observed.add(app.pid)
        return int(app.pid)

    @on_invoke("startObservingPid:")
    async def start_observing(self, pid: Any) -> None:
        """Exit and output of this process are told from now on."""
        self._observed.add(int(pid))

    @on_invoke("stopObservingPid:")
    async def stop_observing(self, pid: Any) -> None:
        self._observed.discard(int(pid))

    @on_invoke("sendSignal:toPid:")
    async def send_signal(self, number: Any, pid: Any) -> None:
        """An NSError when no app has this pid."""
        app = self.host.apps.get(int(pid))
        if app is None:
            raise refusal("NSPOSIXErrorDomain", 3, {"NSLocalizedDescription": "No such process"})
        if int(number) == _SIGKILL:
            await app.kill()
        else:
            app.send(int(number))

    @on_invoke("killPid:")
    async def kill(self, pid: Any) -> None:
        """Nothing happens when no app has this pid."""
        app = self.host.apps.get(int(pid))
        if app is not None:
            await app.kill()

    @on_invoke("processIdentifierForBundleIdentifier:")
    async def pid_of_bundle(self, bundle_id: str) -> int:
        """0 when it does not run."""
        running = self.host.apps.of_bundle(str(bundle_id))
        return int(running[0].pid) if running else 0

    @on_invoke("requestDisableMemoryLimitsForPid:")
    async def disable_memory_limit(self, pid: Any) -> bool:
        """Refused: a device of a farm keeps its limit, or its measurements of memory mean nothing."""
        return False

    @on_invoke("isPidDebuggable:")
    async def is_debuggable(self, pid: Any) -> bool:
        """Apps are."""
        return self.host.apps.get(int(pid)) is not None

    async def _follow_exits(self) -> None:
        with self.host.device.processes.exits.listen() as exits:
            while True:
                ended = await exits.get()
                if ended.pid in self._observed:
                    selector = "processWithPID:terminatedWithExitCode:orCrashingSignal:"
                    self.tell(selector, ended.pid, ended.code, ended.signal)

    async def _follow_output(self) -> None:
        with self.host.device.processes.output.listen() as output:
            while True:
                said = await output.get()
                if said.pid in self._observed:
                    at_us = time.monotonic_ns() // 1000
                    self.tell("outputReceived:fromProcess:atTime:", said.line + "\n", said.pid, at_us)


class Notifications(Channel):
    """mobilenotifications: accepted; state changes of apps are not told."""

    IDENTIFIER = f"{_SERVER}mobilenotifications"

    @on_invoke("setApplicationStateNotificationsEnabled:")
    async def set_application_state(self, enabled: Any) -> None:
        """Accepted."""

    @on_invoke("setMemoryNotificationsEnabled:")
    async def set_memory(self, enabled: Any) -> None:
        """Accepted."""


_CHANNELS: Final = (DeviceInfo, ProcessControl, SysmonTap, Notifications)


def instruments_server(device: VirtualDevice, apps: Apps) -> Callable[[Wire], Awaitable[None]]:
    """Serves DTX connections of one device."""
    host = InstrumentsHost(device, apps)

    async def serve(wire: Wire) -> None:
        await serve_dtx(wire, _CHANNELS, host)

    return serve


def _listed(process: DeviceProcess) -> dict[str, Any]:
    entry = {
        "pid": process.pid,
        "name": process.name,
        "realAppName": f"/virtual/{process.name}",
        "isApplication": bool(process.bundle_id),
    }
    return entry | ({"bundleIdentifier": process.bundle_id} if process.bundle_id else {})


def _as_refusal(error: LaunchRefusedError | PermissionError) -> Exception:
    if isinstance(error, LaunchRefusedError):
        return refusal(error.domain, error.number, {"NSLocalizedDescription": str(error)})
    return refusal("NSPOSIXErrorDomain", 1, {"NSLocalizedDescription": str(error)})
