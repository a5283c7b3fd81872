"""The host target: this machine as a device, with the runtime as a process on it."""

import os
import platform
import shutil
from pathlib import Path
from typing import Final

import psutil
from ulid import ULID

from contract.agent_api import DeviceReport
from contract.device_reasons import DeviceReason
from contract.ids import DeviceId, Name
from contract.states import TargetKind
from device_agent.floor.atomic_file import write_atomically
from device_agent.floor.attempt_folder import AttemptFolder
from device_agent.floor.errors import FolderDamagedError
from device_agent.floor.settings import AgentSettings
from device_agent.targets.host.calibrations import shelf_of
from device_agent.targets.host.subprocess import adopt, launch
from device_agent.targets.models import model_names, model_path, model_problems
from device_agent.targets.port import RuntimeProcess
from device_agent.targets.socket_place import socket_folder, socket_name

_START_DEADLINE_S: Final = 60.0


class HostTarget:
    """This machine. Its id is made once and kept in the agent's home; the home is the device's identity."""

    def __init__(self, settings: AgentSettings) -> None:
        """Reads or makes the device id; FolderDamagedError when its file was emptied."""
        self._settings = settings
        self._device_id = _stable_id(settings.agent_home / "host-device-id")
        self._shelf = shelf_of(settings)

    @property
    def device_id(self) -> DeviceId:
        return self._device_id

    @property
    def start_deadline_s(self) -> float:
        return _START_DEADLINE_S

    def report(self) -> DeviceReport:
        """Not ready while the disk is below its floor, no model is here, or it is being calibrated."""
        settings = self._settings
        models = model_names(settings.models_folder)
        free_bytes = shutil.disk_usage(settings.agent_home).free
        reasons = ["storage_host"] if free_bytes < settings.disk_floor_bytes else []
        reasons += [] if models else ["model_missing"]
        reasons += [DeviceReason.CALIBRATING] if self._shelf.is_measuring else []
        os_name, os_version = _operating_system()
        return DeviceReport(
            device_id=self._device_id,
            kind=TargetKind.HOST,
            generation=1,
            ready=not reasons,
            reasons=reasons,
            device_model=_device_model(),
            os_name=os_name,
            os_version=os_version,
            os_build=platform.version()[:200],
            memory_bytes=psutil.virtual_memory().total,
            models=models,
            model_problems=model_problems(settings.models_folder),
            labels={"arch": platform.machine(), "host": platform.node()},
            properties={"cores": os.cpu_count(), "cpu": _cpu_name(), "python": platform.python_version()},
            calibrations=self._shelf.current(),
        )

    def model_path(self, name: Name) -> Path:
        return model_path(self._settings.models_folder, name)

    def socket_path(self, folder: AttemptFolder) -> Path:
        return socket_folder(self._settings.agent_home) / socket_name(folder.attempt_id)

    def launch(self, folder: AttemptFolder, model_path: Path) -> RuntimeProcess:
        return launch(folder, self._settings.runtime_command, model_path, self.socket_path(folder))

    def abort_launch(self) -> None:
        """Starting a process takes no time worth ending."""

    def adopt(self, folder: AttemptFolder) -> RuntimeProcess | None:
        return adopt(folder)


def _stable_id(path: Path) -> DeviceId:
    try:
        device_id = path.read_text().strip()
    except FileNotFoundError:
        device_id = f"host-{ULID()!s}".lower()
        write_atomically(path, device_id.encode())
    if not device_id:
        raise FolderDamagedError(f"{path} is empty; remove it and this machine becomes a new device")
    return device_id


def _operating_system() -> tuple[str, str]:
    if platform.system() == "Darwin":
        return "macOS", platform.mac_ver()[0]
    return platform.system(), platform.release()


def _device_model() -> str:
    """The machine's own product name where the system tells it, else its architecture."""
    product = Path("/sys/class/dmi/id/product_name")
    try:
        name = product.read_text().strip()
    except OSError:
        name = ""
    return name or f"{platform.system()} {platform.machine()}"


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
