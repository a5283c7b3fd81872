"""Errors of the device agent, one failure each; every one says who must act (contract.failures.Fault)."""

from typing import ClassVar

from contract.failures import FailureReason, Fault


class AgentError(Exception):
    """Base: `kind` is stable and kebab-case; `retryable` says whether the same call may succeed later."""

    kind: ClassVar[str] = "agent-error"
    fault: ClassVar[Fault] = Fault.FARM_BUG
    retryable: ClassVar[bool] = False
    reason: FailureReason = FailureReason.AGENT_BUG
    """What an attempt that could not be started because of it ends with."""


class NotEnrolledError(AgentError):
    """There is no identity and no enrolment token to get one with."""

    kind = "not-enrolled"
    fault = Fault.LAB


class HomeLockedError(AgentError):
    """Another device agent works in the same home."""

    kind = "home-locked"
    fault = Fault.LAB


class ModelMissingError(AgentError):
    """No model of that name is on this device."""

    kind = "model-missing"
    fault = Fault.JOB
    reason = FailureReason.MODEL_MISSING


class CalibrationRunsError(AgentError):
    """Refused: a calibration is running on this machine."""

    kind = "calibration-runs"
    fault = Fault.LAB
    retryable = True


class AttemptRunsError(AgentError):
    """An attempt runs on this machine; a measurement beside it would spoil both."""

    kind = "attempt-runs"
    fault = Fault.LAB
    retryable = True


class CalibrationBrokeError(AgentError):
    """The runtime that measures did not come to a result."""

    kind = "calibration-broke"
    fault = Fault.RUNTIME


class DeviceCallHangsError(AgentError):
    """A call into a device's library did not come back in time; `stack` says where it is."""

    kind = "device-call-hangs"
    fault = Fault.DEVICE
    retryable = True

    def __init__(self, name: str, timeout_s: float, stack: str) -> None:
        """`stack` as traceback.format_stack gives it."""
        super().__init__(f"{name} did not come back within {timeout_s:.1f} s")
        self.stack = stack


class LaunchError(AgentError):
    """The runtime could not be started; `reason` is why the attempt ends."""

    kind = "launch-failed"
    fault = Fault.LAB

    def __init__(self, detail: str, reason: FailureReason = FailureReason.AGENT_BUG) -> None:
        super().__init__(detail)
        self.reason = reason


class SpoolFullError(AgentError):
    """The disk took no more events; nothing of the batch was kept."""

    kind = "spool-full"
    fault = Fault.LAB
    retryable = True


class SpoolBehindError(AgentError):
    """The server holds more events of a stream than this spool ever had."""

    kind = "spool-behind"


class FolderDamagedError(AgentError):
    """A file of an attempt's folder does not parse: it was changed by someone else."""

    kind = "folder-damaged"
    fault = Fault.LAB
