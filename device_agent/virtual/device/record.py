"""What a device remembers: its identity, pairings, apps, settings. One JSON file in the device's folder."""

import hashlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from device_agent.floor.atomic_file import write_atomically
from device_agent.virtual.device.catalogue import DeviceModel, SystemVersion, model_of, parse_version
from device_agent.virtual.errors import StateFolderError

RECORD_FILE: Final = "device.json"
KEY_FILE: Final = "device-key.pem"
Trust = Literal["accept", "prompt", "deny"]
ThermalState = Literal["nominal", "fair", "serious", "critical"]


class _Kept(BaseModel):
    model_config = ConfigDict(extra="forbid", validate_assignment=True, use_attribute_docstrings=True)


class PairedHost(_Kept):
    """The device's half of a pairing; certificates as PEM, the bag in hexadecimal."""

    device_certificate: str
    host_certificate: str
    root_certificate: str
    escrow_bag_hex: str
    system_buid: str = ""


class InstalledApp(_Kept):
    """container: name of the folder that holds the app's Documents."""

    bundle_id: str
    container: str
    info: dict[str, str | int | float | bool]
    """Plain entries of its Info.plist."""
    bundle_bytes: Annotated[int, Field(ge=0)] = 0
    profile_expires: datetime | None = None
    profile_devices: tuple[str, ...] | None = None
    """UDIDs for which the signing profile holds; None: for every device."""
    is_developer_trusted: bool = True


class Battery(_Kept):
    """level_percent as shown to the person; temperature of the cells."""

    level_percent: Annotated[int, Field(ge=0, le=100)] = 87
    is_charging: bool = True
    temperature_c: Annotated[float, Field(ge=-40, le=120)] = 29.4
    cycle_count: int = 212


class DeviceRecord(_Kept):
    """Everything about one device that outlives the emulator."""

    virtual: Literal[True] = True
    udid: str
    product_type: str
    ios_version: str
    device_name: str
    ecid: Annotated[int, Field(ge=1)]
    serial_number: str
    wifi_address: str
    capacity_bytes: Annotated[int, Field(ge=1 << 20)]
    """Of the disk, and at the same time the most that the emulator writes for this device."""
    memory_limit_bytes: Annotated[int, Field(ge=1 << 20)]
    reserved_bytes: Annotated[int, Field(ge=0)] = 0
    """Taken by other things on the disk; nothing is written for it."""
    trust: Trust = "accept"
    """What the person does when the device asks whether to trust a host."""
    is_locked: bool = False
    has_passcode: bool = False
    was_unlocked_since_boot: bool = True
    developer_mode: bool = True
    image_mounted: bool = True
    has_image_manifest: bool = True
    """Whether the device still holds Apple's ticket for its image: mounting needs no network then."""
    low_power_mode: bool = False
    thermal_state: ThermalState = "nominal"
    clock_offset_s: float = 0.0
    boot_id: str = ""
    battery: Battery = Battery()
    hosts: dict[str, PairedHost] = {}
    apps: dict[str, InstalledApp] = {}

    @property
    def version(self) -> SystemVersion:
        return parse_version(self.ios_version)

    @property
    def model(self) -> DeviceModel:
        """Its model's row in the catalogue."""
        return model_of(self.product_type)

    def now(self) -> datetime:
        return datetime.fromtimestamp(datetime.now(UTC).timestamp() + self.clock_offset_s, UTC)


def new_record(
    index: int, model: DeviceModel, version: SystemVersion, capacity_bytes: int, memory_limit_bytes: int
) -> DeviceRecord:
    """The device number `index`: the same number is the same device at every start."""
    digest = hashlib.sha256(f"dynofarm virtual {index} {model.product_type}".encode()).hexdigest()
    # Made up, and in the form that clients check; what tells it from a real device is VIRTUAL_DOMAIN.
    ecid = int(digest[:8], 16) << 24 | (index & 0xFFFF) << 4
    return DeviceRecord(
        udid=f"{model.chip_id:08X}-{ecid:016X}",
        product_type=model.product_type,
        ios_version=str(version),
        device_name=f"Virtual {model.marketing_name} {index}",
        ecid=max(ecid, 1),
        serial_number=f"VIRT{digest[:8].upper()}",
        wifi_address=":".join(["02", *(digest[at : at + 2] for at in range(8, 18, 2))]),
        capacity_bytes=capacity_bytes,
        memory_limit_bytes=memory_limit_bytes,
    )


def read_record(folder: Path) -> DeviceRecord | None:
    """The record in a device's folder, None without one; StateFolderError for one that does not parse."""
    path = folder / RECORD_FILE
    try:
        return DeviceRecord.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise StateFolderError(f"{path}: {place}: {first['msg']}; start with --fresh") from error


def write_record(folder: Path, record: DeviceRecord) -> None:
    """Replaces the record in a device's folder; OSError when the disk cannot be written."""
    write_atomically(folder / RECORD_FILE, record.model_dump_json(indent=1).encode())
