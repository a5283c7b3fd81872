"""How an attempt ended: the runtime's own last word, its exit and the device agent's reason, as one end."""

import signal
from typing import Final

from contract.events import RuntimeFinished
from contract.failures import FailureReason
from contract.run_end import DETAIL_MAX, RunEnd
from contract.runtime_link import RuntimeExit
from device_agent.collect.intake import Progress
from device_agent.targets.port import ExitStatus

_REASON_OF_CODE: Final[dict[int, FailureReason]] = {
    RuntimeExit.USAGE: FailureReason.AGENT_BUG,
    RuntimeExit.CANCELLED: FailureReason.CANCELLED,
    RuntimeExit.LEASE_EXPIRED: FailureReason.LEASE_EXPIRED,
}
_SENT_FROM_OUTSIDE: Final = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGTERM})
"""No program gets these by a fault of its own."""


def explained(stop: RunEnd | None, told: RunEnd | None) -> RunEnd | None:
    """What the device tells of the end, unless the device agent ended the runtime for a reason of its own.

    Silence has a cause: when the device knows it, that is the reason.
    """
    return told if stop is None or stop.reason is FailureReason.RUNTIME_STALLED else None


def conclude(
    status: ExitStatus | None, progress: Progress, stop: RunEnd | None, told: RunEnd | None, log_end: str
) -> RunEnd:
    """The end of one attempt. status None: no runtime was started. stop: why the device agent ended it.

    Broken events and a machine that slept spoil every measurement. Else a runtime that said `completed`
    before it was stopped has completed: whether a late result counts is the controller's to judge.
    """
    if progress.invalid:
        return RunEnd.because(FailureReason.EVENTS_INVALID, progress.invalid)
    if stop is not None and stop.reason is FailureReason.HOST_SUSPENDED:
        return _followed_by(stop, log_end)
    finished = progress.finished
    if finished is not None and finished.status == "completed":
        return RunEnd(outcome="succeeded", detail=finished.detail)
    told = explained(stop, told)
    if stop is not None and told is None:
        return stop if stop.detail else _followed_by(stop, log_end)
    if finished is not None and (told is None or finished.status != "cancelled"):
        return RunEnd.because(_said(finished), finished.detail or log_end)
    if told is not None:
        return _followed_by(told, log_end)
    if status is None:
        return RunEnd.because(
            FailureReason.AGENT_BUG, "the attempt ended without a runtime and without a reason"
        )
    return _followed_by(unsaid(status), log_end)


def unsaid(status: ExitStatus) -> RunEnd:
    """The end of a runtime that ended without its last event and that nobody stopped."""
    if status.signal is not None:
        outside = status.signal in _SENT_FROM_OUTSIDE
        reason = FailureReason.KILLED_OUTSIDE if outside else FailureReason.APP_CRASH
        return RunEnd.because(reason, f"the runtime ended by signal {status.signal}")
    if status.exit_code is None:
        return RunEnd.because(FailureReason.AGENT_RESTARTED)
    reason = _REASON_OF_CODE.get(status.exit_code, FailureReason.RUNTIME_EXIT)
    return RunEnd.because(reason, f"the runtime ended with exit code {status.exit_code}")


def _said(finished: RuntimeFinished) -> FailureReason:
    if finished.status == "cancelled":
        return FailureReason.CANCELLED
    return finished.reason or FailureReason.RUNTIME_EXIT


def _followed_by(end: RunEnd, log_end: str) -> RunEnd:
    detail = ". ".join(part for part in (end.detail, log_end) if part)
    return end.model_copy(update={"detail": detail[:DETAIL_MAX]})
