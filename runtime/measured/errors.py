"""Failures of the process itself, beside those of model and pool in runtime/errors.py."""

from pathlib import Path

from contract.failures import FailureReason
from runtime.errors import RuntimeFault


class EventsNotWrittenError(RuntimeFault, kind="events-not-written", reason=FailureReason.STORAGE_HOST):
    """Events could not be written for `waited_s`; what follows would be lost, so the attempt ends."""

    def __init__(self, path: Path, waited_s: float, detail: str) -> None:
        super().__init__(f"{path}: no event could be written for {waited_s:g} s: {detail}")
        self.path = path


class AttemptFolderError(RuntimeFault, kind="attempt-folder", reason=FailureReason.BAD_SPEC):
    """The attempt's folder is not as the device agent prepares it: a file is missing or in the way."""

    def __init__(self, path: Path, detail: str) -> None:
        super().__init__(f"{path}: {detail}")
        self.path = path


class CancelledError(RuntimeFault, kind="cancelled", reason=FailureReason.CANCELLED):
    """Somebody asked the runtime to stop."""


class OutOfMemoryError(RuntimeFault, kind="out-of-memory", reason=FailureReason.MEMORY_AT_START):
    """The system refused memory."""
