"""What the agent remembers of a device between its lives, and of a run on it."""

from pathlib import Path

from pydantic import ValidationError

from contract.model import ContractModel
from device_agent.floor.atomic_file import write_atomically
from device_agent.floor.errors import FolderDamagedError
from device_agent.ios_worker.protocol import Description

RUN_RECORD = "device_run.json"


class DeviceRecord(ContractModel):
    """generation rises at every plugging in and every reboot."""

    generation: int
    description: Description | None = None


class RunRecord(ContractModel):
    """A run that was started on a device: enough to find it again after a restart of the agent.

    pid None: the launch was under way. started_s: the device's clock before the launch.
    """

    bundle_id: str
    process_name: str
    port: int
    pid: int | None
    boot_id: str
    started_s: float | None
    utc_offset_s: float = 0.0
    product: str


def read_device(path: Path) -> DeviceRecord:
    """Generation 0 for a device that was never seen, or whose record was damaged."""
    try:
        return DeviceRecord.model_validate_json(path.read_bytes())
    except (FileNotFoundError, ValidationError):
        return DeviceRecord(generation=0)


def write_device(path: Path, record: DeviceRecord) -> None:
    """OSError when the disk does not take it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, record.model_dump_json().encode())


def read_run(folder: Path) -> RunRecord | None:
    """None: never launched. FolderDamagedError."""
    try:
        return RunRecord.model_validate_json((folder / RUN_RECORD).read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise FolderDamagedError(f"{folder / RUN_RECORD} does not parse: {error}") from error


def write_run(folder: Path, record: RunRecord) -> None:
    """OSError when the disk does not take it."""
    write_atomically(folder / RUN_RECORD, record.model_dump_json().encode())
