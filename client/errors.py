"""What a command can end with: one class per exit code that stands for a failure.

A regression is not an error: it is an answer, and its exit code comes from the gate.
"""

from typing import ClassVar

from pydantic import ConfigDict

from contract.model import ContractModel
from contract.problems import FieldProblem
from contract.states import GateExit


class ClientError(Exception):
    """code: stable and kebab-case. next_step: one sentence on what to do, "" when detail says it already."""

    exit_code: ClassVar[GateExit] = GateExit.INFRASTRUCTURE

    def __init__(
        self, code: str, detail: str, next_step: str = "", errors: tuple[FieldProblem, ...] = ()
    ) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.next_step = next_step
        self.errors = errors


class UsageError(ClientError):
    """What was asked for is wrong, unknown or not allowed; asking again changes nothing."""

    exit_code = GateExit.USAGE


class InconclusiveError(ClientError):
    """There is no answer yet."""

    exit_code = GateExit.INCONCLUSIVE


class InfrastructureError(ClientError):
    """The farm failed, not the request."""

    exit_code = GateExit.INFRASTRUCTURE


class RunCancelledError(ClientError):
    """The run was cancelled before it had a result."""

    exit_code = GateExit.CANCELLED


class NoCapacityError(ClientError):
    """No device can take it, or none did in time."""

    exit_code = GateExit.NO_CAPACITY


class ErrorReport(ContractModel):
    """What `--json` writes to standard output when a command fails."""

    model_config = ConfigDict(title="ErrorReport")

    error: str
    """The stable code."""
    exit_code: GateExit
    detail: str
    next_step: str
    errors: list[FieldProblem]


def error_report(error: ClientError) -> ErrorReport:
    """The error as one JSON object."""
    return ErrorReport(
        error=error.code,
        exit_code=error.exit_code,
        detail=error.detail,
        next_step=error.next_step,
        errors=list(error.errors),
    )
