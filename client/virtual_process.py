"""The emulator as a child process in a session of its own: Ctrl-C reaches only us, and we end it."""

import select
import subprocess
import time
from types import TracebackType
from typing import IO, Final, Self

from pydantic import ValidationError

from client.child_process import end_process, exit_code
from client.errors import InfrastructureError, UsageError
from contract.virtual_devices import EmulatorView

_START_TIMEOUT_S: Final = 60.0
_STOP_TIMEOUT_S: Final = 20.0
_MAX_LINE_BYTES: Final = 16 << 20
_USAGE_EXIT: Final = 2


class VirtualProcess:
    """Started by `with`, ended at its end."""

    def __init__(self, program: list[str]) -> None:
        self._program = program
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self._process = subprocess.Popen(
                self._program, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True
            )
        except OSError as error:
            raise UsageError("virtual-not-started", f"{self._program[0]}: {error.strerror}") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            end_process(self._process, _STOP_TIMEOUT_S)
            if self._process.stdout is not None:
                self._process.stdout.close()

    def wait_until_ready(self) -> EmulatorView:
        """What it serves; UsageError when it refuses, InfrastructureError when it is not up in 60 s."""
        assert self._process is not None  # entered
        assert self._process.stdout is not None  # asked for
        line = _first_line(self._process.stdout)
        if not line:
            code = exit_code(self._process, _STOP_TIMEOUT_S)
            # It writes to our standard error, so that is on the screen already.
            kind = UsageError if code == _USAGE_EXIT else InfrastructureError
            raise kind(
                "virtual-not-started", f"the emulator ended with exit code {code}; its reason stands above"
            )
        try:
            return EmulatorView.model_validate_json(line)
        except ValidationError as error:
            raise InfrastructureError("virtual-not-started", "what was started is not an emulator") from error

    def wait(self) -> int:
        """Its exit code, whenever it ends."""
        assert self._process is not None  # entered
        return self._process.wait()


def _first_line(stream: IO[bytes]) -> bytes:
    """b"" when the stream ends before its first line; InfrastructureError after 60 s."""
    deadline_s = time.monotonic() + _START_TIMEOUT_S
    while not select.select([stream], [], [], 0.5)[0]:
        if time.monotonic() > deadline_s:
            detail = f"the emulator said nothing for {_START_TIMEOUT_S:.0f} s"
            raise InfrastructureError("virtual-not-started", detail)
    return stream.readline(_MAX_LINE_BYTES)
