"""The attempt's file of events: whole lines appended, synced at least every second."""

import os
import time
from pathlib import Path

from runtime.measured.errors import AttemptFolderError, EventsNotWrittenError

_RETRY_INTERVAL_S = 0.25


class EventFile:
    """Appends to `path`, which must not exist: a runtime is never resumed. AttemptFolderError if it does.

    One thread writes. `stall_s`: how long a disk may refuse (full, gone) before EventsNotWrittenError.
    """

    def __init__(self, path: Path, stall_s: float) -> None:
        try:
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        except OSError as error:
            raise AttemptFolderError(path, f"the events file cannot be created: {error.strerror}") from error
        self.path = path
        self.size_bytes = 0
        self._stall_s = stall_s
        self._synced_bytes = 0
        self._synced_at_s = time.monotonic()

    def append(self, lines: bytes) -> None:
        """Returns when all of `lines` is with the system; a reader may then rely on them."""
        rest = memoryview(lines)
        deadline_s = time.monotonic() + self._stall_s
        while rest:
            try:
                done = os.write(self._descriptor, rest)
                rest = rest[done:]
                self.size_bytes += done
            except OSError as error:
                if time.monotonic() >= deadline_s:
                    raise EventsNotWrittenError(self.path, self._stall_s, error.strerror or "") from error
                time.sleep(_RETRY_INTERVAL_S)

    def sync(self, after_s: float = 0.0) -> bool:
        """True when all that was appended is on the disk; False if the last sync was under `after_s` ago."""
        if self.size_bytes == self._synced_bytes:
            return True
        if time.monotonic() - self._synced_at_s < after_s:
            return False
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            raise EventsNotWrittenError(self.path, 0.0, error.strerror or "") from error
        self._synced_bytes = self.size_bytes
        self._synced_at_s = time.monotonic()
        return True

    def close(self) -> None:
        """Gives the descriptor back; nothing is synced here."""
        os.close(self._descriptor)
