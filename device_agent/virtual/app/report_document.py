"""What all reports of a device share: the header line, names, times."""

import hashlib
import uuid
from dataclasses import dataclass
from typing import Any, Final

from device_agent.virtual.device.device import VirtualDevice

PAGE_BYTES: Final = 16384


@dataclass(frozen=True, slots=True)
class ReportDocument:
    """One .ips file: a header on one line, and a body."""

    name: str
    bug_type: str
    log_class: str
    header: dict[str, Any]
    body: dict[str, Any]


def os_version(device: VirtualDevice) -> str:
    """As reports say it."""
    version = device.record.version
    return f"iPhone OS {version} ({version.build})"


def timestamp(device: VirtualDevice) -> str:
    """The device's clock, with its offset."""
    now = device.record.now()
    return f"{now:%Y-%m-%d %H:%M:%S}.{now.microsecond // 10_000:02d} +0000"


def file_name(device: VirtualDevice, prefix: str) -> str:
    """With the device's clock, as reports are named."""
    return f"{prefix}-{device.record.now():%Y-%m-%d-%H%M%S}.ips"


def reporter_key(device: VirtualDevice) -> str:
    """The same in every report of a device."""
    return hashlib.sha1(f"virtual {device.udid}".encode(), usedforsecurity=False).hexdigest()


def new_incident() -> str:
    """Unique per report."""
    return str(uuid.uuid4()).upper()


def header(device: VirtualDevice, bug_type: str, incident: str) -> dict[str, Any]:
    """The first line. `virtual` is not Apple's: it keeps the report from being taken for a real one."""
    return {
        "bug_type": bug_type,
        "timestamp": timestamp(device),
        "os_version": os_version(device),
        "roots_installed": 0,
        "incident_id": incident,
        "virtual": True,
    }
