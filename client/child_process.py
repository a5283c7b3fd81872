"""The end of a process that we started in a session of its own, so that Ctrl-C reached only us."""

import contextlib
import os
import signal
import subprocess
from typing import Final

# The controller gives its own agent a deadline inside of this one.
STOP_TIMEOUT_S: Final = 30.0


def end_process(process: "subprocess.Popen[bytes]", timeout_s: float = STOP_TIMEOUT_S) -> None:
    """Asks it to end, waits, then ends it and whatever it has left in its session; nothing if it is over."""
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(STOP_TIMEOUT_S)


def exit_code(process: "subprocess.Popen[bytes]", timeout_s: float = STOP_TIMEOUT_S) -> int:
    """Of a process whose output is over; one that goes on all the same is ended."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout_s)
    end_process(process)
    return process.returncode
