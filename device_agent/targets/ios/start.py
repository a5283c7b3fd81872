"""Brings an attempt onto a device and starts it: app, model, folder, launch. Every step may be done again.

What an interrupted start left is used: a model is resumed where it stopped, an installed build is not
installed twice. Only once runtime.log exists may an app have been started, and then none is started again.
"""

import asyncio
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from contract import ios_app
from contract.failures import FailureReason
from contract.runtime_link import EVENTS_FILE, LEASE_FILE, RUNTIME_LOG_FILE, SPEC_FILE, LeaseFile
from device_agent.floor.attempt_folder import AttemptFolder
from device_agent.floor.clock import monotonic_ns, wall
from device_agent.ios_worker.protocol import (
    APP,
    DESCRIBE,
    DEVELOPER,
    INSTALL,
    LAUNCH,
    LIST,
    PUSH,
    REMOVE,
    WRITE,
    AppQuery,
    Description,
    Install,
    Launch,
    Nothing,
    Push,
    RemotePath,
    WorkerErrorKind,
    WriteFile,
)
from device_agent.targets.ios import preflight_steps
from device_agent.targets.ios.builds import Build
from device_agent.targets.ios.device_monitor import PASSING_KINDS, DeviceMonitor
from device_agent.targets.ios.errors import DeviceFaultError, StartRefusedError
from device_agent.targets.ios.model_files import ModelDigests, PushedFile
from device_agent.targets.ios.preflight_steps import StepState
from device_agent.targets.ios.record import RunRecord, write_run

_log = structlog.get_logger(__name__)

_FIRST_PORT: Final = 20_000
_PORTS: Final = 20_000
_DAMAGED_TRIES: Final = 2
_DEVELOPER_DEADLINE_S: Final = 20.0
_MICROSECOND_NS: Final = 1000


@dataclass(frozen=True, slots=True)
class AppIdentity:
    """What is started. executable: the process's name, by which crash reports know it."""

    bundle_id: str
    executable: str


@dataclass(frozen=True, slots=True)
class Start:
    """One start of one attempt. `run` returns the record of the started app; LaunchError."""

    device: DeviceMonitor
    folder: AttemptFolder
    model_path: Path
    digests: ModelDigests

    async def run(self) -> RunRecord:
        """Needs the device's turn."""
        description = await self._described()
        app = await self._app(description)
        await self._tidy(app.bundle_id)
        model = await self._push_model(app.bundle_id)
        port = port_of(self.folder.attempt_id)
        run = ios_app.RunFile(
            attempt_folder=remote_folder(self.folder.attempt_id), model_folder=model, port=port
        )
        await self._write_folder(app.bundle_id, run)
        record = RunRecord(
            bundle_id=app.bundle_id,
            process_name=app.executable,
            port=port,
            pid=None,
            boot_id=description.boot_id,
            # Not earlier: crash reports from before the launch belong to another run.
            started_s=(await self._describe()).clock_s,
            utc_offset_s=description.utc_offset_s,
            product=description.device_model,
        )
        return await self._launch(record, run)

    async def _describe(self) -> Description:
        found = await self.device.patient_call(DESCRIBE, Nothing(), self.device.settings.device_call_s)
        self.device.described(found)
        return found

    async def _described(self) -> Description:
        """What may have changed since the last preflight."""
        description = await self._describe()
        for step, kind in (
            (preflight_steps.ios_step(description), WorkerErrorKind.UNSUPPORTED),
            (preflight_steps.unlocked_step(description), WorkerErrorKind.LOCKED),
            (preflight_steps.developer_mode_step(description), WorkerErrorKind.DEVELOPER_MODE_OFF),
        ):
            if step.state is StepState.BLOCKED:
                raise DeviceFaultError(kind, step.say)
        return description

    async def _app(self, description: Description) -> AppIdentity:
        """The app that is on the device now: the wanted build, or the one that an emulated device brings."""
        call_s = self.device.settings.device_call_s
        artifact = self.folder.spec().build.artifact
        installed = await self.device.patient_call(APP, AppQuery(bundle_id=ios_app.BUNDLE_ID), call_s)
        try:
            build = await asyncio.to_thread(self.device.shelf.choose, artifact)
        except StartRefusedError:
            if artifact is None and description.virtual and installed.installed:
                return AppIdentity(ios_app.BUNDLE_ID, installed.executable)
            raise
        problem = build.signing_problem(self.device.udid, wall(), virtual=description.virtual)
        if problem:
            raise StartRefusedError(problem, FailureReason.SIGNING)
        if build.bundle_id != ios_app.BUNDLE_ID:
            raise StartRefusedError(
                f"{build.path.name} is {build.bundle_id}, not {ios_app.BUNDLE_ID}", FailureReason.SIGNING
            )
        if not installed.installed or installed.build_sha256 != build.sha256:
            await self._install(build, upgrade=installed.installed)
        return AppIdentity(build.bundle_id, build.executable)

    async def _install(self, build: Build, *, upgrade: bool) -> None:
        install = Install(
            bundle_id=build.bundle_id, ipa_path=str(build.path), sha256=build.sha256, upgrade=upgrade
        )
        _log.info("app_is_installed", device_id=self.device.udid, build=build.sha256[:12])
        try:
            await self.device.patient_call(INSTALL, install, self.device.settings.device_install_s)
        except DeviceFaultError as error:
            if error.fault_kind is WorkerErrorKind.STALLED:
                raise StartRefusedError(str(error), FailureReason.INSTALL_TIMEOUT) from error
            raise

    async def _tidy(self, bundle_id: str) -> None:
        """Folders of attempts that ended while the device was away: their agent has what it could get."""
        call_s = self.device.settings.device_call_s
        place = RemotePath(bundle_id=bundle_id, remote_path=ios_app.ATTEMPTS_FOLDER)
        for name in (await self.device.patient_call(LIST, place, call_s)).names:
            if name != self.folder.attempt_id:
                left = RemotePath(bundle_id=bundle_id, remote_path=remote_folder(name))
                await self.device.patient_call(REMOVE, left, self.device.settings.device_chunk_s)

    async def _push_model(self, bundle_id: str) -> str:
        model = await asyncio.to_thread(self.digests.model, self.model_path)
        for file in model.files:
            await self._push(bundle_id, file)
        return model.remote

    async def _push(self, bundle_id: str, file: PushedFile) -> None:
        push = Push(
            bundle_id=bundle_id, local_path=str(file.local), remote_path=file.remote, sha256=file.sha256
        )
        for tried in range(1, _DAMAGED_TRIES + 1):
            try:
                await self.device.patient_call(PUSH, push, self.device.settings.device_chunk_s)
                return
            except DeviceFaultError as error:
                # The part of an earlier try may be what was damaged; it is gone now.
                if error.fault_kind is not WorkerErrorKind.DIGEST_WRONG or tried == _DAMAGED_TRIES:
                    raise

    async def _write_folder(self, bundle_id: str, run: ios_app.RunFile) -> None:
        place = remote_folder(self.folder.attempt_id)
        spec = self.folder.path / SPEC_FILE
        digest = await asyncio.to_thread(self.digests.sha256, spec)
        await self._push(bundle_id, PushedFile(spec, f"{place}/{SPEC_FILE}", digest))
        write = WriteFile(
            bundle_id=bundle_id,
            remote_path=f"{place}/{ios_app.RUN_FILE}",
            text=run.model_dump_json(),
        )
        await self.device.patient_call(WRITE, write, self.device.settings.device_chunk_s)
        await write_lease(self.device, self.folder, bundle_id)

    async def _launch(self, record: RunRecord, run: ios_app.RunFile) -> RunRecord:
        before = await self._running_pid(record.bundle_id)
        await asyncio.to_thread(write_run, self.folder.path, record)
        # From here on an app may run: it is looked for, and not started again.
        await asyncio.to_thread(self.folder.log_path.touch)
        launch = Launch(bundle_id=record.bundle_id, environment=run.environment())
        pid = await self._launched(launch, before)
        record = record.model_copy(update={"pid": pid})
        await asyncio.to_thread(write_run, self.folder.path, record)
        return record

    async def _launched(self, launch: Launch, before: int | None) -> int:
        """Never launched twice: when the answer is lost, an app that was not there before is ours."""
        try:
            answer = await self.device.call(LAUNCH, launch, self.device.settings.device_launch_s)
            return answer.pid
        except DeviceFaultError as error:
            if error.fault_kind not in PASSING_KINDS:
                raise
            found = await self._running_pid(launch.bundle_id)
            if found is None or found == before:
                raise
            return found

    async def _running_pid(self, bundle_id: str) -> int | None:
        query = AppQuery(bundle_id=bundle_id)
        return (await self.device.patient_call(DEVELOPER, query, _DEVELOPER_DEADLINE_S)).app_pid


async def write_lease(device: DeviceMonitor, folder: AttemptFolder, bundle_id: str) -> None:
    """The lease as it stands, as a duration: the device's clock is not ours. Nothing for one that is over.

    The time that writing may take is taken off, since the app counts from its first look.
    """
    lease = await asyncio.to_thread(folder.lease_file)
    if lease is None:
        return
    left_s = (lease.deadline_mono_ns - monotonic_ns()) / 1e9
    deadline_s = min(device.settings.device_call_s, left_s / 4)
    if deadline_s <= 0:
        return
    there = LeaseFile(
        deadline_mono_ns=lease.deadline_mono_ns,
        directive=lease.directive,
        ttl_s=left_s - deadline_s,
        renewal=lease.deadline_mono_ns // _MICROSECOND_NS,
    )
    write = WriteFile(
        bundle_id=bundle_id,
        remote_path=f"{remote_folder(folder.attempt_id)}/{LEASE_FILE}",
        text=there.model_dump_json(),
    )
    await device.call(WRITE, write, deadline_s)


def remote_folder(attempt_id: str) -> str:
    """Of an attempt, relative to the app's Documents."""
    return f"{ios_app.ATTEMPTS_FOLDER}/{attempt_id}"


def remote_events(attempt_id: str) -> str:
    """Relative to the app's Documents."""
    return f"{remote_folder(attempt_id)}/{EVENTS_FILE}"


def remote_log(attempt_id: str) -> str:
    """Relative to the app's Documents."""
    return f"{remote_folder(attempt_id)}/{RUNTIME_LOG_FILE}"


def port_of(attempt_id: str) -> int:
    """The attempt's own, so that an app of an earlier one is never taken for it."""
    return _FIRST_PORT + zlib.crc32(attempt_id.encode()) % _PORTS
