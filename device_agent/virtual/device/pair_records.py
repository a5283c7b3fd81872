"""What usbmuxd keeps of pairings, as /var/lib/lockdown does: one file per device, for its owner only."""

import re
from pathlib import Path
from typing import Final

from device_agent.floor.atomic_file import write_atomically

_NAME: Final = re.compile(r"[A-Za-z0-9-]{1,64}")
_MAX_RECORD_BYTES: Final = 1 << 20


class PairRecords:
    """The host's half of every pairing; a device may have forgotten its own half."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def read(self, udid: str) -> bytes | None:
        """The record as it was saved, None without one."""
        path = self._path(udid)
        return path.read_bytes() if path is not None and path.exists() else None

    def save(self, udid: str, record: bytes) -> None:
        """ValueError for a name or size that no record has."""
        path = self._path(udid)
        if path is None or len(record) > _MAX_RECORD_BYTES:
            raise ValueError("no pair record")
        write_atomically(path, record)

    def delete(self, udid: str) -> None:
        """Nothing happens without a record."""
        path = self._path(udid)
        if path is not None:
            path.unlink(missing_ok=True)

    def _path(self, udid: str) -> Path | None:
        return self._folder / f"{udid}.plist" if _NAME.fullmatch(udid) else None
