"""A farm's log file: each start appends to it, and is shown only what was said since."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, Self

_KEPT_BYTES: Final = 16 << 20
_LINES_SHOWN: Final = 8
_BYTES_READ: Final = 16_384


@dataclass(frozen=True, slots=True)
class FarmLog:
    """One start's part of the log: what stands from `began_at_bytes` on."""

    path: Path
    file: IO[bytes]
    began_at_bytes: int

    @classmethod
    def opened(cls, path: Path) -> Self:
        """OSError when it cannot be written. A log past 16 MiB is first moved to `<name>.1`."""
        if path.exists() and path.stat().st_size > _KEPT_BYTES:
            os.replace(path, path.with_name(f"{path.name}.1"))
        # Appended: what an earlier farm said before it died is what its owner comes to read.
        file = path.open("ab")
        return cls(path, file, file.seek(0, os.SEEK_END))

    def end(self) -> list[str]:
        """The last lines since this start; empty when there is none."""
        try:
            with self.path.open("rb") as file:
                file.seek(max(self.began_at_bytes, self.path.stat().st_size - _BYTES_READ))
                return file.read().decode(errors="replace").splitlines()[-_LINES_SHOWN:]
        except OSError:
            return []
