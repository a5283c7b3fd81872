"""CoreDevice services, from iOS 17 on: launch, list, signal and termination of apps; the lock state."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from device_agent.virtual.app.apps import Apps
from device_agent.virtual.device.device import VirtualDevice
from device_agent.virtual.errors import LaunchRefusedError
from device_agent.virtual.link.wire import Wire
from device_agent.virtual.protocols.xpc import Message, serve_xpc, signed

FEATURE: Final = "com.apple.coredevice.feature."
_SIGKILL: Final = 9

Feature = Callable[[Message], Awaitable[Any]]


class CoreDeviceRefusal(Exception):  # noqa: N818 - an answer to the client, not a failure of ours
    """The feature is not carried out; the client gets this as its error."""

    def __init__(self, domain: str, number: int, detail: str) -> None:
        super().__init__(detail)
        self.domain = domain
        self.number = number


@dataclass(frozen=True, slots=True)
class CoreDeviceService:
    """A named service and its features."""

    name: str
    features: dict[str, Feature]

    async def serve(self, wire: Wire) -> None:
        await serve_xpc(wire, self._answer)

    async def _answer(self, message: Message) -> Message | None:
        name = message.get("CoreDevice.featureIdentifier")
        if name is None:
            return None
        feature = self.features.get(str(name))
        try:
            if feature is None:
                raise CoreDeviceRefusal("com.apple.dt.CoreDeviceError", 1, f"no feature {name}")
            return {"CoreDevice.output": await feature(message.get("CoreDevice.input") or {})}
        except CoreDeviceRefusal as refusal:
            info = {"NSLocalizedDescription": str(refusal)}
            error = {"domain": refusal.domain, "code": signed(refusal.number), "userInfo": info}
            return {"CoreDevice.error": error}


class _AppService:
    def __init__(self, device: VirtualDevice, apps: Apps) -> None:
        self._device = device
        self._apps = apps

    async def launch(self, given: Message) -> Message:
        bundle_id = str(given["applicationSpecifier"]["bundleIdentifier"]["_0"])
        options = given.get("options") or {}
        environment = {
            str(name): str(value) for name, value in (options.get("environmentVariables") or {}).items()
        }
        kill_existing = bool(options.get("terminateExisting", True))
        try:
            app = await self._apps.launch(bundle_id, environment, kill_existing=kill_existing)
        except LaunchRefusedError as error:
            raise CoreDeviceRefusal(error.domain, error.number, str(error)) from error
        except PermissionError as error:
            raise CoreDeviceRefusal("NSPOSIXErrorDomain", 1, str(error)) from error
        return {"processToken": self._token(app.pid, app.name), "deviceTimestamp": None}

    async def processes(self, _: Message) -> Message:
        listed = self._device.processes.all()
        return {"processTokens": [self._token(each.pid, each.name) for each in listed if each.pid]}

    async def applications(self, _: Message) -> list[Message]:
        return [
            {
                "bundleIdentifier": app.bundle_id,
                "name": str(app.info.get("CFBundleName", app.bundle_id)),
                "version": str(app.info.get("CFBundleShortVersionString", "1.0")),
                "bundleVersion": str(app.info.get("CFBundleVersion", "1")),
                "isRemovable": True,
            }
            for app in self._device.record.apps.values()
        ]

    async def send_signal(self, given: Message) -> Message:
        app = self._app(int(given["process"]["processIdentifier"]))
        number = int(given["signal"])
        if number == _SIGKILL:
            await app.kill()
        else:
            app.send(number)
        return {"process": self._token(app.pid, app.name), "signal": signed(number)}

    async def monitor_termination(self, given: Message) -> Message:
        app = self._app(int(given["processToken"]["processIdentifier"]))
        await app.ended.wait()
        ended = app.exit
        code, number = (ended.code or 0, ended.signal or 0) if ended is not None else (0, 0)
        return {"terminationReason": {"signal": signed(number), "exitCode": signed(code)}}

    def _app(self, pid: int) -> Any:
        app = self._apps.get(pid)
        if app is None:
            raise CoreDeviceRefusal("NSPOSIXErrorDomain", 3, "No such process")
        return app

    @staticmethod
    def _token(pid: int, name: str) -> Message:
        return {"processIdentifier": signed(pid), "executableURL": {"relative": f"file:///virtual/{name}"}}


def core_device_services(device: VirtualDevice, apps: Apps) -> list[CoreDeviceService]:
    """Those of a device whose image is mounted."""
    service = _AppService(device, apps)

    async def lock_state(_: Message) -> Message:
        record = device.record
        return {
            "passcodeRequired": record.is_locked,
            "unlockedSinceBoot": record.was_unlocked_since_boot,
        }

    async def device_info(_: Message) -> Message:
        return {"name": device.record.device_name, "marketingName": device.record.model.marketing_name}

    return [
        CoreDeviceService(
            "com.apple.coredevice.appservice",
            {
                f"{FEATURE}launchapplication": service.launch,
                f"{FEATURE}listprocesses": service.processes,
                f"{FEATURE}listapps": service.applications,
                f"{FEATURE}sendsignaltoprocess": service.send_signal,
                f"{FEATURE}monitorprocesstermination": service.monitor_termination,
            },
        ),
        CoreDeviceService(
            "com.apple.coredevice.deviceinfo",
            {f"{FEATURE}getlockstate": lock_state, f"{FEATURE}getdeviceinfo": device_info},
        ),
    ]
