"""The tables of run, job and attempt; drawn in docs/jobs.md and docs/attempts.md."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from contract.failures import FailureReason
from contract.states import AttemptState, JobOutcome, JobState, RunState
from controller.states.machine import Machine
from controller.states.times import FarmTimes


class AttemptCause(StrEnum):
    """Why an attempt changes its state."""

    ACCEPTED = "accepted"
    RUNNING_REPORTED = "running_reported"
    UPLOADING_REPORTED = "uploading_reported"
    RESULT_SUCCEEDED = "result_succeeded"
    RESULT_FAILED = "result_failed"
    RESULT_ERRORED = "result_errored"
    RESULT_REFUSED = "result_refused"
    RESULT_CANCELLED = "result_cancelled"
    RESULT_TIMED_OUT = "result_timed_out"
    ACCEPT_OVERDUE = "accept_overdue"
    PREPARE_OVERDUE = "prepare_overdue"
    RUN_OVERDUE = "run_overdue"
    UPLOAD_OVERDUE = "upload_overdue"
    STALLED = "stalled"
    DEVICE_DETACHED = "device_detached"
    LEASE_EXPIRED = "lease_expired"
    LEASE_REVOKED = "lease_revoked"
    SALVAGED_SUCCEEDED = "salvaged_succeeded"
    SALVAGED_FAILED = "salvaged_failed"
    SUPERSEDED = "superseded"


_A, _AC = AttemptState, AttemptCause
_LIVE: Final = (_A.LEASED, _A.PREPARING, _A.RUNNING, _A.UPLOADING)


def _from_live(
    cause: AttemptCause, target: AttemptState
) -> dict[tuple[AttemptState, AttemptCause], AttemptState]:
    return {(state, cause): target for state in _LIVE}


# The controller learns of a phase from renewals, every twenty seconds: a fast attempt skips some.
ATTEMPT_MACHINE: Final = Machine(
    name="attempt",
    initial=_A.LEASED,
    transitions=MappingProxyType(
        {
            (_A.LEASED, _AC.ACCEPTED): _A.PREPARING,
            (_A.LEASED, _AC.RUNNING_REPORTED): _A.RUNNING,
            (_A.PREPARING, _AC.RUNNING_REPORTED): _A.RUNNING,
            (_A.LEASED, _AC.UPLOADING_REPORTED): _A.UPLOADING,
            (_A.PREPARING, _AC.UPLOADING_REPORTED): _A.UPLOADING,
            (_A.RUNNING, _AC.UPLOADING_REPORTED): _A.UPLOADING,
            (_A.LEASED, _AC.ACCEPT_OVERDUE): _A.ERRORED,
            (_A.PREPARING, _AC.PREPARE_OVERDUE): _A.ERRORED,
            (_A.RUNNING, _AC.RUN_OVERDUE): _A.TIMED_OUT,
            (_A.RUNNING, _AC.STALLED): _A.ERRORED,
            (_A.UPLOADING, _AC.UPLOAD_OVERDUE): _A.ERRORED,
            **_from_live(_AC.RESULT_SUCCEEDED, _A.SUCCEEDED),
            **_from_live(_AC.RESULT_FAILED, _A.FAILED),
            **_from_live(_AC.RESULT_ERRORED, _A.ERRORED),
            **_from_live(_AC.RESULT_CANCELLED, _A.CANCELLED),
            **_from_live(_AC.RESULT_TIMED_OUT, _A.TIMED_OUT),
            (_A.LEASED, _AC.RESULT_REFUSED): _A.REFUSED,
            (_A.PREPARING, _AC.RESULT_REFUSED): _A.REFUSED,
            **_from_live(_AC.DEVICE_DETACHED, _A.ERRORED),
            **_from_live(_AC.LEASE_EXPIRED, _A.LOST),
            **_from_live(_AC.LEASE_REVOKED, _A.LOST),
            (_A.LOST, _AC.SALVAGED_SUCCEEDED): _A.SUCCEEDED,
            (_A.LOST, _AC.SALVAGED_FAILED): _A.FAILED,
            (_A.LOST, _AC.SUPERSEDED): _A.ORPHANED,
        }
    ),
    meanings=MappingProxyType(
        {
            _AC.ACCEPTED: "the agent's first renewal",
            _AC.RUNNING_REPORTED: "a renewal says that the runtime runs",
            _AC.UPLOADING_REPORTED: "a renewal says that the runtime has ended",
            _AC.RESULT_SUCCEEDED: "the result is accepted: every event and artifact is stored",
            _AC.RESULT_FAILED: "the workload or the runtime failed, says the accepted result",
            _AC.RESULT_ERRORED: "the farm failed, says the accepted result",
            _AC.RESULT_REFUSED: "the agent does not want to start it",
            _AC.RESULT_CANCELLED: "the agent stopped it because it was told to; what was measured is kept",
            _AC.RESULT_TIMED_OUT: "the agent stopped it at its run limit",
            _AC.ACCEPT_OVERDUE: "no renewal came in time after the claim",
            _AC.PREPARE_OVERDUE: "preparing took longer than its limit and the grace",
            _AC.RUN_OVERDUE: "running took longer than its limit and the grace",
            _AC.UPLOAD_OVERDUE: "uploading took longer than its limit and the grace",
            _AC.STALLED: "no event came for longer than the limit and the grace",
            _AC.DEVICE_DETACHED: "the agent no longer sees the device",
            _AC.LEASE_EXPIRED: "no renewal came within the ttl",
            _AC.LEASE_REVOKED: "the device was seen on another agent",
            _AC.SALVAGED_SUCCEEDED: "a late result, and nothing newer was granted for the job or the device",
            _AC.SALVAGED_FAILED: "the same, for a result that says failed",
            _AC.SUPERSEDED: "a late result, but something newer was granted: kept, never counted",
        }
    ),
)

LIVE_ATTEMPT_STATES: Final = ATTEMPT_MACHINE.sources(AttemptCause.LEASE_EXPIRED)

REASON_OF_CAUSE: Final = MappingProxyType(
    {
        AttemptCause.ACCEPT_OVERDUE: FailureReason.ACCEPT_TIMEOUT,
        AttemptCause.PREPARE_OVERDUE: FailureReason.PREPARE_TIMEOUT,
        AttemptCause.RUN_OVERDUE: FailureReason.RUN_TIMEOUT,
        AttemptCause.UPLOAD_OVERDUE: FailureReason.UPLOAD_TIMEOUT,
        AttemptCause.STALLED: FailureReason.RUNTIME_STALLED,
        AttemptCause.DEVICE_DETACHED: FailureReason.DEVICE_DISCONNECTED,
        AttemptCause.LEASE_EXPIRED: FailureReason.LEASE_EXPIRED,
        AttemptCause.LEASE_REVOKED: FailureReason.DEVICE_DISCONNECTED,
        AttemptCause.RESULT_TIMED_OUT: FailureReason.RUN_TIMEOUT,
        AttemptCause.RESULT_CANCELLED: FailureReason.CANCELLED,
    }
)
"""The reason of an attempt whose end nobody gave a better one for."""


@dataclass(frozen=True, slots=True)
class AttemptDeadline:
    """How long a state may last (from periods and the attempt's own limits), and what happens then."""

    period_s: Callable[[FarmTimes, Mapping[str, float]], float]
    cause: AttemptCause


ATTEMPT_DEADLINES: Final = MappingProxyType(
    {
        _A.LEASED: AttemptDeadline(lambda times, limits: times.accept_s, _AC.ACCEPT_OVERDUE),
        _A.PREPARING: AttemptDeadline(
            lambda times, limits: limits["prepare_s"] + times.limit_grace_s, _AC.PREPARE_OVERDUE
        ),
        _A.RUNNING: AttemptDeadline(
            lambda times, limits: limits["run_s"] + times.limit_grace_s, _AC.RUN_OVERDUE
        ),
        _A.UPLOADING: AttemptDeadline(
            lambda times, limits: limits["upload_s"] + times.limit_grace_s, _AC.UPLOAD_OVERDUE
        ),
    }
)


class JobCause(StrEnum):
    """Why a job changes its state."""

    CLAIMED = "claimed"
    STARTED = "started"
    REQUEUED = "requeued"
    EXHAUSTED = "exhausted"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    QUEUE_OVERDUE = "queue_overdue"
    CANCEL_REQUESTED = "cancel_requested"
    CANCEL_COMPLETED = "cancel_completed"
    SALVAGED_SUCCEEDED = "salvaged_succeeded"
    SALVAGED_FAILED = "salvaged_failed"


_J, _JC = JobState, JobCause

JOB_MACHINE: Final = Machine(
    name="job",
    initial=_J.QUEUED,
    transitions=MappingProxyType(
        {
            (_J.QUEUED, _JC.CLAIMED): _J.ASSIGNED,
            (_J.QUEUED, _JC.QUEUE_OVERDUE): _J.DONE,
            (_J.QUEUED, _JC.CANCEL_REQUESTED): _J.DONE,
            (_J.QUEUED, _JC.SALVAGED_SUCCEEDED): _J.DONE,
            (_J.QUEUED, _JC.SALVAGED_FAILED): _J.DONE,
            (_J.ASSIGNED, _JC.STARTED): _J.RUNNING,
            **{
                (state, cause): target
                for state in (_J.ASSIGNED, _J.RUNNING)
                for cause, target in (
                    (_JC.REQUEUED, _J.QUEUED),
                    (_JC.EXHAUSTED, _J.DONE),
                    (_JC.SUCCEEDED, _J.DONE),
                    (_JC.FAILED, _J.DONE),
                    (_JC.TIMED_OUT, _J.DONE),
                    (_JC.CANCEL_REQUESTED, _J.CANCELLING),
                )
            },
            (_J.CANCELLING, _JC.CANCEL_COMPLETED): _J.DONE,
            # Only from the outcome infra_failed, and only before the run has a verdict.
            (_J.DONE, _JC.SALVAGED_SUCCEEDED): _J.DONE,
            (_J.DONE, _JC.SALVAGED_FAILED): _J.DONE,
        }
    ),
    meanings=MappingProxyType(
        {
            _JC.CLAIMED: "an agent was granted an attempt",
            _JC.STARTED: "the attempt runs",
            _JC.REQUEUED: "the attempt was refused, lost or failed by the farm, and tries are left",
            _JC.EXHAUSTED: "the same, and no tries are left",
            _JC.SUCCEEDED: "the attempt succeeded",
            _JC.FAILED: "the attempt failed for a reason that another try would not cure",
            _JC.TIMED_OUT: "the attempt ran into its run limit",
            _JC.QUEUE_OVERDUE: "it waited longer than its queue deadline",
            _JC.CANCEL_REQUESTED: "a person cancelled it",
            _JC.CANCEL_COMPLETED: "its attempt has ended, or lost its lease",
            _JC.SALVAGED_SUCCEEDED: "the result of a lost attempt came late, and nothing newer was granted",
            _JC.SALVAGED_FAILED: "the same, for a result that says failed",
        }
    ),
)

OUTCOME_OF_CAUSE: Final = MappingProxyType(
    {
        JobCause.EXHAUSTED: JobOutcome.INFRA_FAILED,
        JobCause.SUCCEEDED: JobOutcome.SUCCEEDED,
        JobCause.FAILED: JobOutcome.FAILED,
        JobCause.TIMED_OUT: JobOutcome.TIMED_OUT,
        JobCause.QUEUE_OVERDUE: JobOutcome.EXPIRED,
        JobCause.CANCEL_REQUESTED: JobOutcome.CANCELLED,
        JobCause.CANCEL_COMPLETED: JobOutcome.CANCELLED,
        JobCause.SALVAGED_SUCCEEDED: JobOutcome.SUCCEEDED,
        JobCause.SALVAGED_FAILED: JobOutcome.FAILED,
    }
)
"""The outcome of a job that becomes done by this cause."""


class RunCause(StrEnum):
    """Why a run changes its state."""

    JOBS_DONE = "jobs_done"
    CONCLUDED = "concluded"


RUN_MACHINE: Final = Machine(
    name="run",
    initial=RunState.ACTIVE,
    transitions=MappingProxyType(
        {
            (RunState.ACTIVE, RunCause.JOBS_DONE): RunState.FINISHING,
            (RunState.FINISHING, RunCause.CONCLUDED): RunState.COMPLETED,
        }
    ),
    meanings=MappingProxyType(
        {
            RunCause.JOBS_DONE: "its last job is done",
            RunCause.CONCLUDED: "analysis and gate have spoken; the verdict never changes after that",
        }
    ),
)
