"""How an attempt ended: the runtime's own last word, its exit and the agent's reason, as one outcome."""

from dataclasses import dataclass
from typing import Final, Literal

from contract.events import RuntimeFinished
from contract.failures import FAILURES, FailureReason, Fault
from contract.runtime_link import RuntimeExit
from device_agent.targets.port import Diagnosis, ExitStatus

Outcome = Literal["succeeded", "failed", "errored", "refused", "cancelled", "timed_out"]

_OF_REASON: dict[FailureReason, Outcome] = {
    FailureReason.RUN_TIMEOUT: "timed_out",
    FailureReason.CANCELLED: "cancelled",
}


# Silence has a cause: when the device knows it, that is the reason.
_EXPLAINED_BY_DEVICE: Final = (None, FailureReason.RUNTIME_STALLED)


@dataclass(frozen=True, slots=True)
class Ending:
    """All that is known at the end. status None: the runtime was never started.

    diagnosis: what the device tells. stop: why the agent ended the runtime, None when it ended by itself.
    """

    status: ExitStatus | None
    finished: RuntimeFinished | None
    stop: FailureReason | None
    events_invalid: str
    diagnosis: Diagnosis | None
    detail: str

    @property
    def explained(self) -> Diagnosis | None:
        """The diagnosis, unless the agent ended the runtime for a reason of its own."""
        return self.diagnosis if self.stop in _EXPLAINED_BY_DEVICE else None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the result says; reason None means succeeded."""

    outcome: Outcome
    reason: FailureReason | None
    detail: str


def outcome_of(reason: FailureReason) -> Outcome:
    """The workload's or the runtime's own failure is `failed`; what the farm did to it is `errored`."""
    if reason in _OF_REASON:
        return _OF_REASON[reason]
    return "failed" if FAILURES[reason].fault in (Fault.JOB, Fault.RUNTIME) else "errored"


def conclude(ending: Ending) -> Verdict:
    """The verdict on one ended attempt.

    Broken events and a machine that slept spoil every measurement. Else a runtime that said `completed`
    before it was stopped has completed: whether a late result counts is the controller's to judge.
    """
    if ending.events_invalid:
        return _because(FailureReason.EVENTS_INVALID, ending.events_invalid)
    if ending.stop is FailureReason.HOST_SUSPENDED:
        return _because(ending.stop, ending.detail)
    finished = ending.finished
    if finished is not None and finished.status == "completed":
        return Verdict("succeeded", None, finished.detail)
    explained = ending.explained
    if ending.stop is not None and explained is None:
        return _because(ending.stop, ending.detail)
    if finished is not None and (explained is None or finished.status != "cancelled"):
        return _because(_said(finished), finished.detail or ending.detail)
    if explained is not None:
        return _because(explained.reason, f"{explained.detail}. {ending.detail}")
    if ending.status is None:
        return _because(FailureReason.AGENT_BUG, "the attempt ended without a runtime and without a reason")
    return _because(*_unsaid(ending, ending.status))


def _because(reason: FailureReason, detail: str) -> Verdict:
    return Verdict(outcome_of(reason), reason, detail)


def _said(finished: RuntimeFinished) -> FailureReason:
    if finished.status == "cancelled":
        return FailureReason.CANCELLED
    return finished.reason or FailureReason.RUNTIME_EXIT


def _unsaid(ending: Ending, status: ExitStatus) -> tuple[FailureReason, str]:
    """Reason and detail for a runtime that ended without its last event."""
    if status.signal is not None:
        return FailureReason.APP_CRASH, f"the runtime ended by signal {status.signal}. {ending.detail}"
    if status.exit_code is None:
        return FailureReason.AGENT_RESTARTED, ending.detail
    reasons: dict[int, FailureReason] = {
        RuntimeExit.USAGE: FailureReason.AGENT_BUG,
        RuntimeExit.CANCELLED: FailureReason.CANCELLED,
        RuntimeExit.LEASE_EXPIRED: FailureReason.LEASE_EXPIRED,
    }
    reason = reasons.get(status.exit_code, FailureReason.RUNTIME_EXIT)
    return reason, f"the runtime ended with exit code {status.exit_code}. {ending.detail}"
