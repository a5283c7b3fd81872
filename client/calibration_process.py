"""The process that calibrates this machine: its lines one by one, ended with us."""

import os
import subprocess
from collections.abc import Iterator, Sequence

from pydantic import ValidationError

from client.child_process import end_process, exit_code
from client.errors import InfrastructureError, UsageError
from contract.calibration import CALIBRATION_LINE, CalibrationFailed, CalibrationFinished, CalibrationStep

_BROKEN = "what it said stands above; it needs `pip install 'dynofarm[agent,runtime]'`"


def calibration_lines(program: Sequence[str]) -> Iterator[CalibrationStep | CalibrationFinished]:
    """Steps, and at last what was found. UsageError and InfrastructureError for what it says went wrong.

    Its own deadlines end it: a measuring process that falls silent is given up there.
    """
    try:
        process = subprocess.Popen(
            program,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            start_new_session=True,
        )
    except OSError as error:
        raise InfrastructureError(
            "calibration-not-started", f"{program[0]} cannot be started: {error.strerror}", _BROKEN
        ) from error
    assert process.stdout is not None
    try:
        with process.stdout as lines:
            for text in lines:
                line = _parsed(text)
                yield line
                if isinstance(line, CalibrationFinished):
                    return
        raise InfrastructureError(
            "calibration-failed", f"it ended with exit code {exit_code(process)} and no result", _BROKEN
        )
    finally:
        end_process(process)


def _parsed(text: bytes) -> CalibrationStep | CalibrationFinished:
    try:
        line: CalibrationStep | CalibrationFinished | CalibrationFailed = CALIBRATION_LINE.validate_json(text)
    except ValidationError as error:
        raise InfrastructureError(
            "calibration-failed", f"a line that is none of ours: {text[:200]!r}", _BROKEN
        ) from error
    if isinstance(line, CalibrationFailed):
        kind = UsageError if line.is_usage else InfrastructureError
        raise kind(line.code, line.detail, line.next_step)
    return line
