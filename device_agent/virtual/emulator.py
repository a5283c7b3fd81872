"""The emulator: its devices, the usbmuxd socket, and the folder in which everything is kept."""

import asyncio
import fcntl
import os
import shutil
import tempfile
import uuid
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import IO, Final

from contract.ios_app import BUNDLE_ID
from contract.virtual_devices import CONTROL_SOCKET, MAX_DEVICES, USBMUXD_SOCKET, PlayedFault
from device_agent.virtual.app.apps import AppCommand, Apps
from device_agent.virtual.app.report_writer import ReportWriter
from device_agent.virtual.device.catalogue import DeviceModel, SystemVersion
from device_agent.virtual.device.device import VirtualDevice
from device_agent.virtual.device.pair_records import PairRecords
from device_agent.virtual.device.record import DeviceRecord, InstalledApp, new_record, read_record
from device_agent.virtual.errors import StateFolderError, UnknownDeviceError
from device_agent.virtual.protocols.installation_proxy import InstallationProxy
from device_agent.virtual.protocols.service_set import equip, start_lockdown
from device_agent.virtual.protocols.usbmux import Usbmuxd

_DEVICES: Final = "devices"
_LOCK: Final = "lock"
_SOCKET_FOLDER: Final = "app-sockets"
_SOCKET_PREFIX: Final = "dynofarm-virtual-"
_MAX_SOCKET_PATH_BYTES: Final = 100
_PROFILE_DAYS: Final = 300
_KEPT_FAULTS: Final = 50


@dataclass(frozen=True, slots=True)
class EmulatorOptions:
    """models and versions are dealt to the devices in turn. limit_bytes None: that of each model."""

    home: Path
    count: int
    models: Sequence[DeviceModel]
    versions: Sequence[SystemVersion]
    program: tuple[str, ...]
    capacity_bytes: int
    limit_bytes: int | None = None
    with_app: bool = True
    fresh: bool = False


@dataclass(frozen=True, slots=True)
class Restart:
    """How a device goes down and comes back."""

    downtime_s: float = 1.0
    clock_jump_s: float = 0.0
    comes_back_locked: bool = True


@dataclass(slots=True)
class Unit:
    """One device with everything that acts on it. played: the faults that came to pass, newest last."""

    device: VirtualDevice
    apps: Apps
    installer: InstallationProxy
    reports: ReportWriter
    played: deque[PlayedFault] = field(default_factory=lambda: deque(maxlen=_KEPT_FAULTS))


class Emulator:
    """Opened once, closed once; in between it serves."""

    def __init__(self, options: EmulatorOptions) -> None:
        self.home = options.home
        self.units: list[Unit] = []
        self._options = options
        self._lock: IO[bytes] | None = None
        self._socket_folder = Path()
        self.stopping = asyncio.Event()

    @property
    def usbmuxd_socket(self) -> Path:
        """Where clients connect."""
        return self.home / USBMUXD_SOCKET

    @property
    def control_socket(self) -> Path:
        """Where faults are ordered."""
        return self.home / CONTROL_SOCKET

    async def open(self) -> None:
        """Devices are attached and served on return; StateFolderError when the folder cannot be used."""
        self._take_folder()
        self._make_socket_folder()
        self.usbmuxd = Usbmuxd(PairRecords(self.home / "pair-records"))
        for index in range(1, self._options.count + 1):
            self.units.append(self._make_unit(index))
        self.usbmuxd_socket.unlink(missing_ok=True)
        await self.usbmuxd.listen(self.usbmuxd_socket)
        self.usbmuxd_socket.chmod(0o600)
        for unit in self.units:
            self.usbmuxd.attach(unit.device)

    async def close(self) -> None:
        """Ends apps, connections and sockets; the devices' folders stay."""
        if self.units:
            for unit in self.units:
                await self.shut_down(unit)
            await self.usbmuxd.close()
        if self._lock is not None:
            # The folder is ours: another emulator's sockets are never touched.
            self.usbmuxd_socket.unlink(missing_ok=True)
            if self._socket_folder != Path():
                shutil.rmtree(self._socket_folder, ignore_errors=True)
                (self.home / _SOCKET_FOLDER).unlink(missing_ok=True)
            self._lock.close()

    async def shut_down(self, unit: Unit) -> None:
        """One device goes down: what waits is forgotten, its app ends, reports to come are not written."""
        await unit.device.triggers.clear()
        unit.device.link.resume()
        unit.device.end_connections()
        await unit.apps.end_all()
        await unit.reports.close()
        unit.device.save()

    async def restart(self, unit: Unit, how: Restart) -> None:
        """Down at once; up again after the downtime, with a new boot id, new numbers and no image."""
        device, record = unit.device, unit.device.record
        kinds = [each.kind for each in self.usbmuxd.entries_of(device)]
        for entry in self.usbmuxd.entries_of(device):
            await self.usbmuxd.detach(entry)
        device.end_connections()
        device.ports.clear()
        await unit.apps.end_all()
        device.processes.restart()
        record.image_mounted = False
        record.is_locked = how.comes_back_locked
        record.was_unlocked_since_boot = not how.comes_back_locked
        record.boot_id = str(uuid.uuid4()).upper()
        record.clock_offset_s += how.clock_jump_s
        device.save()
        await asyncio.sleep(how.downtime_s)
        start_lockdown(device)
        for kind in kinds:
            self.usbmuxd.attach(device, kind)

    def unit(self, udid: str) -> Unit:
        """The device, also by the beginning of its UDID if that is unique; UnknownDeviceError otherwise."""
        found = [unit for unit in self.units if unit.device.udid == udid]
        found = found or [unit for unit in self.units if unit.device.udid.startswith(udid)]
        if not found:
            raise UnknownDeviceError(f"no virtual device has the UDID {udid!r}")
        if len({unit.device.udid for unit in found}) > 1:
            raise UnknownDeviceError(f"{udid!r} is the beginning of several UDIDs")
        return found[0]

    def add_clone(self, unit: Unit) -> Unit:
        """Another device with the same UDID: other ECID, name and serial number, nothing installed."""
        if len(self.units) >= MAX_DEVICES:
            raise UnknownDeviceError(f"{MAX_DEVICES} devices are the most")
        twin = unit.device.record.model_copy(
            update={
                "ecid": unit.device.record.ecid + 1,
                "device_name": f"{unit.device.record.device_name} (clone)",
                "serial_number": f"{unit.device.record.serial_number}C",
                "hosts": {},
                "apps": {},
                "boot_id": "",
            }
        )
        folder = unit.device.folder.with_name(f"{unit.device.folder.name}-clone-{len(self.units)}")
        clone = self._equipped(folder, twin)
        self.units.append(clone)
        return clone

    def _take_folder(self) -> None:
        """Ours alone until close."""
        socket = os.fsencode(self.usbmuxd_socket)
        if len(socket) > _MAX_SOCKET_PATH_BYTES:
            raise StateFolderError(f"{self.home} is too long a path for sockets; choose another --home")
        try:
            self.home.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = (self.home / _LOCK).open("ab")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                lock.close()
                raise
            self._lock = lock
        except BlockingIOError:
            raise StateFolderError(
                f"virtual devices run already in {self.home}; `dynofarm virtual stop` ends them"
            ) from None
        except OSError as error:
            raise StateFolderError(f"{self.home} cannot be used: {error.strerror}") from error
        if self._options.fresh:
            for name in (_DEVICES, "pair-records"):
                shutil.rmtree(self.home / name, ignore_errors=True)

    def _make_socket_folder(self) -> None:
        """A short path for the sockets of apps; that of an emulator that was killed is removed."""
        link = self.home / _SOCKET_FOLDER
        if link.is_symlink():
            left = link.readlink()
            if left.name.startswith(_SOCKET_PREFIX):
                shutil.rmtree(left, ignore_errors=True)
            link.unlink()
        self._socket_folder = Path(tempfile.mkdtemp(prefix=_SOCKET_PREFIX))
        link.symlink_to(self._socket_folder)

    def _make_unit(self, index: int) -> Unit:
        options = self._options
        model = options.models[(index - 1) % len(options.models)]
        version = options.versions[(index - 1) % len(options.versions)]
        limit_bytes = options.limit_bytes or model.limit_bytes
        record = new_record(index, model, version, options.capacity_bytes, limit_bytes)
        folder = self.home / _DEVICES / record.udid
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        kept = read_record(folder)
        if kept is None:
            unit = self._equipped(folder, record)
            if options.with_app:
                _preinstall(unit)
            unit.device.save()
            return unit
        # The same device, after an update of its system.
        kept.ios_version = record.ios_version
        kept.capacity_bytes, kept.memory_limit_bytes = record.capacity_bytes, record.memory_limit_bytes
        return self._equipped(folder, kept)

    def _equipped(self, folder: Path, record: DeviceRecord) -> Unit:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        device = VirtualDevice(folder, record)
        reports = ReportWriter(device)
        apps = Apps(device, AppCommand(self._options.program, self._socket_folder), reports)
        installer = InstallationProxy(device, apps)
        unit = Unit(device, apps, installer, reports)

        def restart() -> None:
            # Asked for by a client through a service, whose connection ends with the restart.
            device.triggers.arm_after(0.0, lambda: self.restart(unit, Restart()))

        equip(device, apps, installer, restart)
        return unit


def _preinstall(unit: Unit) -> None:
    """The app as an earlier session left it: a client that has no package can launch it."""
    record = unit.device.record
    record.apps[BUNDLE_ID] = InstalledApp(
        bundle_id=BUNDLE_ID,
        container=unit.device.disk.new_container(),
        info={
            "CFBundleExecutable": "Runner",
            "CFBundleName": "dynofarm",
            "CFBundleVersion": "1",
            "CFBundleShortVersionString": "0.1",
            "UIFileSharingEnabled": True,
        },
        profile_expires=record.now() + timedelta(days=_PROFILE_DAYS),
    )
