"""installation_proxy: which apps there are; install, upgrade and uninstall with their refusals."""

from collections.abc import Iterator
from typing import Any, Final

from device_agent.virtual.app.apps import Apps
from device_agent.virtual.app.package import Package, read_package
from device_agent.virtual.device.catalogue import SystemVersion
from device_agent.virtual.device.device import VirtualDevice
from device_agent.virtual.device.disk import resolve_below
from device_agent.virtual.device.record import InstalledApp
from device_agent.virtual.device.triggers import Progress
from device_agent.virtual.errors import PackageError
from device_agent.virtual.link.wire import Wire

_PAGE: Final = 20
_BEFORE: Final = (
    (5, "CreatingStagingDirectory"),
    (15, "ExtractingPackage"),
    (20, "InspectingPackage"),
    (30, "PreflightingApplication"),
    (40, "VerifyingApplication"),
)
_AFTER: Final = ((50, "CreatingContainer"), (60, "InstallingApplication"), (90, "GeneratingApplicationMap"))
_FOREIGN: Final = (
    "Failed to verify code signature of {bundle} : 0xe8008012"
    " (This provisioning profile cannot be installed on this device.)"
)
_EXPIRED: Final = (
    "Failed to verify code signature of {bundle} : 0xe8008011 (The provisioning profile has expired.)"
)


class InstallationProxy:
    """The service of one device. refuse_next: an error that the next install ends with."""

    def __init__(self, device: VirtualDevice, apps: Apps) -> None:
        self._device = device
        self._apps = apps
        self.refuse_next: PackageError | None = None

    async def serve(self, wire: Wire) -> None:
        """Commands until the client leaves."""
        while True:
            query = await wire.receive_plist()
            options = query.get("ClientOptions") or {}
            match query.get("Command"):
                case "Lookup":
                    found = {app.bundle_id: self._view(app, options) for app in self._selected(options)}
                    await wire.send_plist({"LookupResult": found, "Status": "Complete"})
                case "Browse":
                    for page in self._pages(options):
                        await wire.send_plist(page)
                case "Install" | "Upgrade":
                    await self._install(wire, query)
                case "Uninstall":
                    await self._uninstall(wire, query)
                case "CheckCapabilitiesMatch":
                    await wire.send_plist({"LookupResult": {"CapabilitiesMatch": True}, "Status": "Complete"})
                case other:
                    await wire.send_plist({"Error": "UnknownCommand", "ErrorDescription": str(other)})

    def _selected(self, options: dict[str, Any]) -> list[InstalledApp]:
        wanted, kind = options.get("BundleIDs"), options.get("ApplicationType", "Any")
        if kind not in ("Any", "User"):
            return []
        apps = self._device.record.apps.values()
        return [app for app in apps if not wanted or app.bundle_id in wanted]

    def _pages(self, options: dict[str, Any]) -> Iterator[dict[str, Any]]:
        apps = [self._view(app, options) for app in self._selected(options)]
        for start in range(0, len(apps), _PAGE):
            page = apps[start : start + _PAGE]
            yield {
                "CurrentIndex": start,
                "CurrentAmount": len(page),
                "CurrentList": page,
                "Status": "BrowsingApplications",
                "Total": len(apps),
            }
        yield {"Status": "Complete"}

    def _view(self, app: InstalledApp, options: dict[str, Any]) -> dict[str, Any]:
        name = str(app.info.get("CFBundleExecutable", "Runner"))
        everything: dict[str, Any] = {
            **app.info,
            "CFBundleIdentifier": app.bundle_id,
            "CFBundleExecutable": name,
            "ApplicationType": "User",
            "Container": f"/var/mobile/Containers/Data/Application/{app.container}",
            "Path": f"/var/containers/Bundle/Application/{app.container}/{name}.app",
            "SignerIdentity": "Apple Development: virtual",
            "ProfileValidated": True,
            "UIFileSharingEnabled": bool(app.info.get("UIFileSharingEnabled", True)),
            "Entitlements": {"get-task-allow": True, "application-identifier": f"VIRTUAL000.{app.bundle_id}"},
            "StaticDiskUsage": app.bundle_bytes,
            "DynamicDiskUsage": 0,
        }
        wanted = options.get("ReturnAttributes")
        return {key: value for key, value in everything.items() if not wanted or key in wanted}

    async def _install(self, wire: Wire, query: dict[str, Any]) -> None:
        try:
            done_percent = await self._progress(wire, _BEFORE, 0)
            path = resolve_below(self._device.disk.media, str(query.get("PackagePath", "")))
            package = read_package(path)
            self._check(package)
            self._room_for(package)
            await self._progress(wire, _AFTER, done_percent)
            await self._put(package)
        except (PackageError, PermissionError) as error:
            refused = error if isinstance(error, PackageError) else PackageError("InvalidPath", str(error))
            await wire.send_plist(
                {"Error": refused.name, "ErrorDescription": refused.detail, "ErrorDetail": -402620395}
            )
            return
        await wire.send_plist({"Status": "Complete"})

    async def _progress(self, wire: Wire, stages: tuple[tuple[int, str], ...], done_percent: int) -> int:
        for percent, stage in stages:
            await wire.send_plist({"PercentComplete": percent, "Status": stage})
            await self._device.triggers.advance(Progress.INSTALL_PERCENT, percent - done_percent)
            done_percent = percent
        return done_percent

    def _check(self, package: Package) -> None:
        refused, self.refuse_next = self.refuse_next, None
        if refused is not None:
            raise refused
        record = self._device.record
        numbers = [int(part) for part in package.minimum_version.split(".")[:3] if part.isdigit()]
        minimum = SystemVersion(*[*numbers, 0, 0][:3])
        if minimum > record.version:
            raise PackageError(
                "DeviceOSVersionTooLow", f"The app needs {package.minimum_version}, this is {record.version}"
            )
        if package.expires <= record.now():
            raise PackageError("ApplicationVerificationFailed", _EXPIRED.format(bundle=package.bundle_id))
        if package.devices is not None and record.udid not in package.devices:
            raise PackageError("ApplicationVerificationFailed", _FOREIGN.format(bundle=package.bundle_id))

    def _room_for(self, package: Package) -> None:
        disk = self._device.disk
        disk.measure()
        if package.size_bytes > disk.free_bytes:
            detail = f"{package.size_bytes} bytes are needed, {disk.free_bytes} are free"
            raise PackageError("InsufficientStorage", detail)

    async def _put(self, package: Package) -> None:
        record = self._device.record
        old = record.apps.get(package.bundle_id)
        for running in self._apps.of_bundle(package.bundle_id):
            await running.kill()
        record.apps[package.bundle_id] = InstalledApp(
            bundle_id=package.bundle_id,
            container=old.container if old is not None else self._device.disk.new_container(),
            info=package.info,
            bundle_bytes=package.size_bytes,
            profile_expires=package.expires,
            profile_devices=package.devices,
        )
        self._device.save()
        self._device.notifications.say("com.apple.mobile.application_installed")

    async def _uninstall(self, wire: Wire, query: dict[str, Any]) -> None:
        bundle_id = str(query.get("ApplicationIdentifier"))
        await wire.send_plist({"Status": "RemovingApplication", "PercentComplete": 50})
        for running in self._apps.of_bundle(bundle_id):
            await running.kill()
        # An app that is not there is no error, as on a real device.
        app = self._device.record.apps.pop(bundle_id, None)
        if app is not None:
            self._device.disk.remove_container(app.container)
            self._device.save()
            self._device.notifications.say("com.apple.mobile.application_uninstalled")
        await wire.send_plist({"Status": "Complete"})
