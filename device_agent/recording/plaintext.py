"""The other half of a recording: what a worker sends and gets above TLS, which the proxy cannot see.

A worker asks for the sink once, at its start, and hands it what it writes and reads on each service.
"""

import os
from pathlib import Path
from typing import Final

from device_agent.floor.clock import monotonic_ns
from device_agent.floor.redaction import Redactor
from device_agent.recording.recorder import Capture, Counts, Limits, Recorder
from device_agent.recording.transcript import Sender
from device_agent.recording.wire import Stage

ENV_PLAINTEXT_FOLDER: Final = "DYNOFARM_PLAINTEXT_DIR"
"""Set for a worker whose plaintext is to be recorded, into this folder; never in everyday use."""
ENV_SECRETS_FILE: Final = "DYNOFARM_RECORDING_SECRETS"
"""A file of further secrets, one a line; optional."""


class PlaintextSink:
    """Records connections by a key that the worker chooses, such as the id of its socket object."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._open: dict[object, Capture] = {}

    def opened(self, key: object, service: str) -> None:
        """A service was opened; an earlier one with the same key has ended."""
        self.closed(key)
        self._open[key] = self._recorder.open(Stage.UNKNOWN, service)

    def record(self, key: object, sender: Sender, data: bytes) -> None:
        """Bytes of an opened service; those of any other are a service without a name."""
        if key not in self._open:
            self.opened(key, "")
        self._recorder.record(self._open[key], sender, data)

    def closed(self, key: object) -> None:
        """The service has ended; nothing happens for one that was never opened."""
        capture = self._open.pop(key, None)
        if capture is not None:
            self._recorder.close(capture)

    def finish(self) -> Counts:
        """End every connection and the recording."""
        for key in list(self._open):
            self.closed(key)
        return self._recorder.finish()


def sink_from_environment(name: str) -> PlaintextSink | None:
    """The sink that the environment asks for, None when it does not; OSError. name: of the worker's file."""
    folder = os.environ.get(ENV_PLAINTEXT_FOLDER)
    if not folder:
        return None
    secrets_file = os.environ.get(ENV_SECRETS_FILE)
    redactor = Redactor(read_secrets(Path(secrets_file)) if secrets_file else ())
    started_ns = monotonic_ns()
    recorder = Recorder(
        Path(folder), name, redactor, Limits(), lambda: (monotonic_ns() - started_ns) / 1_000_000
    )
    return PlaintextSink(recorder)


def read_secrets(path: Path) -> list[str]:
    """One secret a line; OSError, UnicodeDecodeError."""
    return [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
