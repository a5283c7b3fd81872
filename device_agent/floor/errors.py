"""Errors of the device agent, one failure each; every one says who must act (contract.failures.Fault)."""

from typing import ClassVar

from contract.events.envelope import Stream
from contract.failures import FailureReason, Fault


class AgentError(Exception):
    """Base: `kind` is stable and kebab-case; `retryable` says whether the same call may succeed later."""

    kind: ClassVar[str] = "agent-error"
    fault: ClassVar[Fault] = Fault.FARM_BUG
    retryable: ClassVar[bool] = False
    reason: FailureReason = FailureReason.AGENT_BUG
    """What an attempt that could not be started because of it ends with."""


class ControllerUnreachableError(AgentError):
    """No answer within the deadline, or a server or proxy that says it cannot serve now."""

    kind = "controller-unreachable"
    fault = Fault.LAB
    retryable = True

    def __init__(self, detail: str, retry_after_s: float | None = None) -> None:
        """retry_after_s: what the server asked for, None when it asked for nothing."""
        super().__init__(detail)
        self.retry_after_s = retry_after_s


class AnswerInvalidError(AgentError):
    """The controller answered 2xx with a body that the contract refuses."""

    kind = "answer-invalid"


class RefusedError(AgentError):
    """The controller understood and refused; `code` is the problem's code."""

    kind = "refused"

    def __init__(self, code: str, status: int, detail: str) -> None:
        """`code` as in contract.problems, or `http-<status>` for a body that is no problem document."""
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.status = status
        self.detail = detail


class EventsGapError(RefusedError):
    """The server lacks events before the batch: go back to next_seq."""

    kind = "events-gap"
    next_seq: int = 1


class EventsMissingError(RefusedError):
    """A result came before its events: `stream` lacks next_seq and what follows."""

    kind = "events-missing"
    next_seq: int = 1
    stream: Stream | None = None


class ArtifactsMissingError(RefusedError):
    """The result names files that the server does not hold: send them again."""

    kind = "artifacts-missing"
    retryable = True


class SeqConflictError(RefusedError):
    """The server holds another event under the same number: two writers, or a lost spool."""

    kind = "seq-conflict"


class FencedError(RefusedError):
    """A newer grant of the device exists."""

    kind = "fenced"
    fault = Fault.LAB


class LeaseGoneError(RefusedError):
    """The lease is over: stop, clean, say hello."""

    kind = "lease-gone"
    fault = Fault.LAB


class PayloadTooLargeError(RefusedError):
    """The batch is larger than this server takes."""

    kind = "payload-too-large"


class AgentOutdatedError(RefusedError):
    """Contract versions differ; a person must install the same version on both sides."""

    kind = "device-agent-outdated"
    fault = Fault.LAB


class TokenRefusedError(RefusedError):
    """The agent's token is unknown or revoked: enrol again."""

    kind = "token-refused"
    fault = Fault.LAB


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
    """This machine is being calibrated: by another process, or in the way of what was asked."""

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
        """`detail` is for a person."""
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
