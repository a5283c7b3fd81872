"""The app: what is installed, installing it, starting it, signals to it."""

import asyncio
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError
from pymobiledevice3.exceptions import AfcException, PyMobileDevice3Exception
from pymobiledevice3.lockdown import UsbmuxLockdownClient
from pymobiledevice3.services.installation_proxy import InstallationProxyService

from contract.ios_app import BUILD_FILE, BuildFile
from device_agent.ios_worker.faults import WorkerError, kind_of
from device_agent.ios_worker.files import AppFiles, Progress, inside
from device_agent.ios_worker.image import mount_image
from device_agent.ios_worker.protocol import (
    AppQuery,
    DeveloperAccess,
    Install,
    InstalledApp,
    Launch,
    Launched,
    Nothing,
    Signal,
    WorkerErrorKind,
    WriteFile,
)
from device_agent.ios_worker.session import Session

_PERCENT: Final = 100


class Apps:
    """The calls about the app and about the developer services that start it."""

    def __init__(self, session: Session, images: Path) -> None:
        """images: folder of developer disk images on this host."""
        self._session = session
        self._files = AppFiles(session)
        self._images = images

    async def mount_image(self, nothing: Nothing, progress: Progress) -> Nothing:
        """See image.mount_image."""
        await mount_image(await self._session.lockdown(), self._images)
        return Nothing()

    async def open_tunnel(self, nothing: Nothing, progress: Progress) -> Nothing:
        """Nothing to do before iOS 17."""
        await self._session.provider()
        return Nothing()

    async def developer(self, query: AppQuery, progress: Progress) -> DeveloperAccess:
        """Uses a developer service: that an image is listed as mounted does not prove that it works."""
        processes = await self._session.processes()
        pid = await processes.service.process_identifier_for_bundle_identifier_(query.bundle_id)
        return DeveloperAccess(app_pid=int(pid) or None)

    async def app(self, query: AppQuery, progress: Progress) -> InstalledApp:
        """The build's digest is what the host wrote down in the app's Documents after the installation."""
        client = await self._session.lockdown()
        found = await _lookup(client, query.bundle_id)
        if found is None:
            return InstalledApp(installed=False, version="", executable="", build_sha256=None)
        version = f"{found.get('CFBundleShortVersionString', '')} ({found.get('CFBundleVersion', '')})"
        return InstalledApp(
            installed=True,
            version=version,
            executable=str(found.get("CFBundleExecutable", "")),
            build_sha256=await self._build_digest(query.bundle_id),
        )

    async def install(self, install: Install, progress: Progress) -> Nothing:
        """Progress is told in percent; the upload before it is one step."""
        client = await self._session.lockdown()
        # Its container may be another one afterwards.
        await self._session.release()
        async with InstallationProxyService(client) as installer:
            await installer.install_from_local(
                Path(install.ipa_path),
                cmd="Upgrade" if install.upgrade else "Install",
                handler=lambda percent, *_: progress(round(percent), _PERCENT),
                developer=True,
            )
        record = BuildFile(sha256=install.sha256).model_dump_json()
        await self._files.write(
            WriteFile(bundle_id=install.bundle_id, remote_path=BUILD_FILE, text=record), progress
        )
        return Nothing()

    async def launch(self, launch: Launch, progress: Progress) -> Launched:
        """Started and observed; an instance that ran is killed."""
        processes = await self._session.processes()
        service = processes.service
        start = (
            service.launch_suspended_process_with_device_path_bundle_identifier_environment_arguments_options_
        )
        options = {"StartSuspendedKey": False, "KillExisting": True}
        pid = await start("", launch.bundle_id, dict(launch.environment), [], options)
        if not pid:
            raise WorkerError(WorkerErrorKind.LAUNCH_REFUSED, "the device started no process, for no reason")
        await service.startObservingPid_(int(pid))
        return Launched(pid=int(pid))

    async def signal(self, signal: Signal, progress: Progress) -> Nothing:
        """Nothing for a process that is gone."""
        processes = await self._session.processes()
        try:
            await processes.service.send_signal_to_pid_(signal.number, signal.pid)
        except Exception as error:
            if kind_of(error) is not WorkerErrorKind.LAUNCH_REFUSED:
                raise
        return Nothing()

    async def _build_digest(self, bundle_id: str) -> str | None:
        try:
            afc = await self._session.files(bundle_id)
            text = await afc.get_file_contents(inside(BUILD_FILE))
        except AfcException as error:
            if kind_of(error) is WorkerErrorKind.FILE_MISSING:
                return None
            raise
        try:
            return BuildFile.model_validate_json(text).sha256
        except ValidationError:
            return None


async def _lookup(client: UsbmuxLockdownClient, bundle_id: str) -> dict[str, Any] | None:
    async with InstallationProxyService(client) as installer:
        try:
            found = await installer.lookup({"BundleIDs": [bundle_id]})
        except asyncio.CancelledError:
            raise
        except PyMobileDevice3Exception as error:
            if type(error) is PyMobileDevice3Exception:
                return None
            raise
    entry = (found or {}).get(bundle_id)
    return entry if isinstance(entry, dict) else None
