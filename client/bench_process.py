"""The process that measures: started, waited for with a deadline, ended with us; its answer parsed once."""

import os
import subprocess
from collections.abc import Sequence
from typing import Final

from pydantic import TypeAdapter, ValidationError

from client.child_process import end_process
from client.errors import ClientError, InfrastructureError, RunCancelledError, UsageError
from contract.bench import BenchFailure, BenchReport
from contract.runtime_link import RuntimeExit

_GRACE_S: Final = 120.0
"""The process ends by itself at its limit; then it has this long to say so."""
_ANSWER: Final[TypeAdapter[BenchReport | BenchFailure]] = TypeAdapter(BenchReport | BenchFailure)


def run_bench(program: Sequence[str], limit_s: float) -> BenchReport:
    """The report. ClientError for a failure of the process, with what it says to try.

    Its progress goes to our standard error. Ctrl-C reaches only us: we ask it to stop, and wait for it.
    """
    try:
        process = subprocess.Popen(
            program,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
    except OSError as error:
        raise InfrastructureError(
            "bench-not-started", f"{program[0]} cannot be started: {error.strerror}", "check the installation"
        ) from error
    try:
        said, _ = process.communicate(timeout=limit_s + _GRACE_S)
    except subprocess.TimeoutExpired as error:
        raise InfrastructureError(
            "bench-stalled", f"no answer within {limit_s + _GRACE_S:g} s", "raise --limit-s, or measure less"
        ) from error
    finally:
        end_process(process)
        if process.stdout is not None:
            process.stdout.close()
    return _report(said, process.returncode)


def _report(said: bytes, exit_code: int) -> BenchReport:
    try:
        answer = _ANSWER.validate_json(said)
    except ValidationError as error:
        raise InfrastructureError(
            "bench-failed",
            f"the measuring process ended with exit code {exit_code} and no answer",
            "what it said stands above; the runtime needs `pip install 'dynofarm[runtime]'`",
        ) from error
    if isinstance(answer, BenchReport):
        return answer
    kinds: dict[int, type[ClientError]] = {
        RuntimeExit.USAGE: UsageError,
        RuntimeExit.CANCELLED: RunCancelledError,
    }
    raise kinds.get(exit_code, InfrastructureError)(answer.kind, answer.detail, answer.advice)
