"""The disk of one device: its folders, and how many bytes are free to the last one."""

import errno
import os
import shutil
import uuid
from pathlib import Path, PurePosixPath
from typing import Final

from device_agent.virtual.device.record import DeviceRecord

MEDIA: Final = "Media"
CRASH_REPORTS: Final = "CrashReports"
PENDING_REPORTS: Final = "CrashReportsPending"
CONTAINERS: Final = "Containers"
_BLOCK_BYTES: Final = 4096
_FOLDERS: Final = (f"{MEDIA}/PublicStaging", CRASH_REPORTS, PENDING_REPORTS, CONTAINERS)


class Disk:
    """Folders below `root`. Used bytes are those of files that clients and apps wrote."""

    def __init__(self, root: Path, record: DeviceRecord) -> None:
        self.root = root
        self._record = record
        for name in _FOLDERS:
            (root / name).mkdir(parents=True, exist_ok=True, mode=0o700)
        self._used_bytes = 0
        self.measure()

    @property
    def media(self) -> Path:
        """What the AFC service shows."""
        return self.root / MEDIA

    @property
    def crash_reports(self) -> Path:
        """Reports that clients can read."""
        return self.root / CRASH_REPORTS

    @property
    def pending_reports(self) -> Path:
        """Reports that only a flush moves to where clients read."""
        return self.root / PENDING_REPORTS

    @property
    def used_bytes(self) -> int:
        """As of the last measure, plus what AFC wrote since."""
        return self._used_bytes + sum(app.bundle_bytes for app in self._record.apps.values())

    @property
    def free_bytes(self) -> int:
        """Never negative."""
        return max(0, self._record.capacity_bytes - self._record.reserved_bytes - self.used_bytes)

    def measure(self) -> None:
        """Looks at every file: apps write without asking."""
        self._used_bytes = sum(_file_bytes(self.root / name) for name in (MEDIA, CONTAINERS))

    def grow(self, size_bytes: int) -> int:
        """How many of so many more bytes there is room for; they count as used. Negative gives room back."""
        granted_bytes = min(size_bytes, self.free_bytes)
        self._used_bytes = max(0, self._used_bytes + granted_bytes)
        return granted_bytes

    def leave_free(self, free_bytes: int) -> None:
        """Fills the disk, without a real byte, until so many are left."""
        self.measure()
        taken_bytes = self._record.capacity_bytes - self.used_bytes - free_bytes
        self._record.reserved_bytes = max(0, taken_bytes)

    def file_system_info(self) -> dict[str, str | int]:
        """As AFC tells it."""
        return {
            "Model": self._record.product_type,
            "FSTotalBytes": self._record.capacity_bytes,
            "FSFreeBytes": self.free_bytes,
            "FSBlockSize": _BLOCK_BYTES,
        }

    def container(self, name: str) -> Path:
        """The folder of an app's data."""
        return self.root / CONTAINERS / name

    def new_container(self) -> str:
        """Name of a fresh one, with its Documents."""
        name = str(uuid.uuid4()).upper()
        (self.container(name) / "Documents").mkdir(parents=True)
        return name

    def remove_container(self, name: str) -> None:
        """The app's data is gone."""
        shutil.rmtree(self.container(name), ignore_errors=True)
        self.measure()


def _file_bytes(folder: Path) -> int:
    total_bytes = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total_bytes += os.lstat(os.path.join(parent, name)).st_size
            except FileNotFoundError:
                # An app removed it while we looked.
                continue
    return total_bytes


def resolve_below(root: Path, name: str) -> Path:
    """The path that a client means by `name`; PermissionError for one that leaves `root`, also by a link."""
    parts = [part for part in PurePosixPath("/" + name).parts[1:] if part not in ("", ".")]
    path = root
    for part in parts:
        if part == "..":
            if path == root:
                raise PermissionError(errno.EPERM, "outside of what is shown", name)
            path = path.parent
        else:
            path = path / part
    if not path.resolve().is_relative_to(root.resolve()):
        raise PermissionError(errno.EPERM, "outside of what is shown", name)
    return path
