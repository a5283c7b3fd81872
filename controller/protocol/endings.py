"""Endings: an attempt's with all that follows for lease, device and job; an overdue lease's; a run's.

A run is finishing when its last job is done, and completed when analysis has spoken.
"""

from datetime import datetime
from typing import Any, Final

from sqlalchemy import select

from contract.failures import FAILURES, FailureReason
from contract.run_end import RunEnd
from contract.states import AttemptState, DeviceState, JobState, RunOutcome, RunState
from controller.db.attempts import AttemptRepository, LeaseRepository
from controller.db.devices import DeviceRepository
from controller.db.models import AttemptRow, DeviceRow, JobRow, RunRow
from controller.db.runs import JobRepository, RunRepository
from controller.db.unit_of_work import UnitOfWork
from controller.protocol.transitions import move_attempt, move_device, move_job, move_run
from controller.scheduling.facts import farm_facts, job_facts
from controller.scheduling.placement import candidates
from controller.states.devices import DEVICE_MACHINE, DeviceCause
from controller.states.work import REASON_OF_CAUSE, AttemptCause, JobCause, RunCause

# The agent itself says so: by then it has let go of the device.
CAUSES_FROM_AGENT: Final = frozenset(
    {
        AttemptCause.RESULT_SUCCEEDED,
        AttemptCause.RESULT_FAILED,
        AttemptCause.RESULT_ERRORED,
        AttemptCause.RESULT_REFUSED,
        AttemptCause.RESULT_CANCELLED,
        AttemptCause.RESULT_TIMED_OUT,
    }
)


def end_attempt(
    work: UnitOfWork, attempt: AttemptRow, cause: AttemptCause, end: RunEnd | None = None, detail: str = ""
) -> None:
    """End a live attempt with all that follows; InvalidTransitionError if it has ended.

    end: what the device agent said, None when the controller ends it; then the reason is the cause's own.
    """
    move_attempt(work, attempt, cause)
    said = end.reason if end is not None else None
    attempt.reason = said or REASON_OF_CAUSE.get(cause)
    attempt.detail = end.detail if end is not None else detail
    held_until = _release(work, attempt)
    device = DeviceRepository(work.session).get_locked(attempt.device_id)
    if cause not in CAUSES_FROM_AGENT:
        device.hold_until = held_until + work.times.hold
    _leave_device(work, device, attempt, cause)
    _follow_up(work, attempt)


def expire_overdue(work: UnitOfWork) -> int:
    """End the attempts of all leases whose time is over; returns how many.

    Doing it lazily means that no answer ever depends on how long ago the sweep ran.
    """
    work.session.flush()
    overdue = LeaseRepository(work.session).overdue(work.now)
    for lease in overdue:
        attempt = AttemptRepository(work.session).get_locked(lease.attempt_id)
        detail = f"last renewal at {lease.renewed_at.isoformat()}"
        end_attempt(work, attempt, AttemptCause.LEASE_EXPIRED, detail=detail)
        work.session.flush()
    return len(overdue)


def job_cause(
    job_state: JobState, attempt_state: AttemptState, reason: FailureReason | None, tries_left: int
) -> JobCause:
    """What the end of its attempt means for the job.

    Another try is given when the farm failed, not when the workload did. An agent that stops without
    being asked to (it shuts down) counts as the farm.
    """
    if job_state is JobState.CANCELLING:
        return JobCause.CANCEL_COMPLETED
    match attempt_state:
        case AttemptState.SUCCEEDED:
            return JobCause.SUCCEEDED
        case AttemptState.FAILED:
            return JobCause.FAILED
        case AttemptState.TIMED_OUT:
            return JobCause.TIMED_OUT
        case AttemptState.ERRORED if reason is not None and not FAILURES[reason].retryable:
            return JobCause.FAILED
        case _:
            return JobCause.REQUEUED if tries_left > 0 else JobCause.EXHAUSTED


def _release(work: UnitOfWork, attempt: AttemptRow) -> datetime:
    """Until when the holder may believe in its lease."""
    lease = LeaseRepository(work.session).live_of_attempt(attempt.attempt_id)
    if lease is None:
        return work.now
    lease.released_at = work.now
    return lease.expires_at


def _leave_device(work: UnitOfWork, device: DeviceRow, attempt: AttemptRow, cause: AttemptCause) -> None:
    at_fault = (
        attempt.state is AttemptState.ERRORED
        and attempt.reason is not None
        and FAILURES[attempt.reason].penalise_device
    )
    if at_fault:
        device.faults_in_a_row += 1
    elif attempt.state in {AttemptState.SUCCEEDED, AttemptState.FAILED, AttemptState.TIMED_OUT}:
        device.faults_in_a_row, device.rechecks = 0, 0
    # A device whose agent is offline stays lost; its hold is already set.
    if device.state is not DeviceState.LEASED:
        return
    detail = f"{attempt.attempt_id}: {attempt.reason.value if attempt.reason else attempt.state.value}"
    if cause is AttemptCause.DEVICE_DETACHED:
        move_device(work, device, DeviceCause.DETACHED, detail)
    elif cause is AttemptCause.LEASE_EXPIRED:
        move_device(work, device, DeviceCause.LEASE_EXPIRED, detail)
    elif cause not in CAUSES_FROM_AGENT:
        move_device(work, device, DeviceCause.LEASE_REVOKED, detail)
    else:
        left = DeviceCause.ATTEMPT_FAULTED if at_fault else DeviceCause.ATTEMPT_ENDED
        move_device(work, device, left, detail)
    if at_fault and attempt.reason is not None:
        _quarantine_if_hopeless(work, device, attempt.reason)
    _drain(work, device)


def _quarantine_if_hopeless(work: UnitOfWork, device: DeviceRow, reason: FailureReason) -> None:
    hopeless = device.faults_in_a_row >= work.times.faults_to_quarantine
    if hopeless and DEVICE_MACHINE.allows(device.state, DeviceCause.RECOVERY_EXHAUSTED):
        device.reasons = [reason.value]
        detail = f"{device.faults_in_a_row} attempts in a row failed by {reason.value}"
        move_device(work, device, DeviceCause.RECOVERY_EXHAUSTED, detail)


def _drain(work: UnitOfWork, device: DeviceRow) -> None:
    """A person wanted the device once its attempt is over."""
    wanted, device.drain_to = device.drain_to, None
    detail = "; ".join(["its attempt has ended", *device.reasons])
    if wanted is DeviceState.QUARANTINED and device.state is not DeviceState.QUARANTINED:
        move_device(work, device, DeviceCause.QUARANTINE_ORDERED, detail)
    elif wanted is DeviceState.MAINTENANCE:
        move_device(work, device, DeviceCause.MAINTENANCE_ORDERED, detail)


def _follow_up(work: UnitOfWork, attempt: AttemptRow) -> None:
    job = JobRepository(work.session).get_locked(attempt.job_id)
    cause = job_cause(job.state, attempt.state, attempt.reason, job.max_attempts - job.attempts_used)
    move_job(work, job, cause)
    if cause is JobCause.REQUEUED:
        _prepare_retry(work, job, attempt.device_id)
    elif job.state is JobState.DONE:
        settle_run(work, job.run_id)


def _prepare_retry(work: UnitOfWork, job: JobRow, device_id: str) -> None:
    """Elsewhere if there is an elsewhere; otherwise on the same device, later and later."""
    if candidates(job_facts(job), farm_facts(work.session)) - {device_id}:
        job.excluded_devices = sorted({*job.excluded_devices, device_id})
        job.not_before = None
        return
    backoff_s = work.times.retry_backoff_s * 2.0 ** (job.attempts_used - 1)
    job.not_before = work.after(min(backoff_s, work.times.retry_backoff_max_s))


def settle_run(work: UnitOfWork, run_id: str) -> None:
    """Let the run finish if its last job is done; nothing happens otherwise, or when it already has."""
    work.session.flush()
    # The lock comes before the look: of two jobs that end at once, one must see the other.
    run = RunRepository(work.session).get_locked(run_id)
    open_job = work.session.scalar(
        select(JobRow.job_id).where(JobRow.run_id == run_id, JobRow.state != JobState.DONE).limit(1)
    )
    if run.state is RunState.ACTIVE and open_job is None:
        move_run(work, run, RunCause.JOBS_DONE)


def conclude_run(work: UnitOfWork, run_id: str, outcome: RunOutcome, gate: dict[str, Any]) -> RunRow:
    """Give a finishing run its verdict, for good; InvalidTransitionError unless it is finishing.

    Compute outcome and gate in the same unit of work, after RunRepository.get_locked: a late result may
    change a job until the run is completed. `gate` is the GateView as JSON.
    """
    run = RunRepository(work.session).get_locked(run_id)
    move_run(work, run, RunCause.CONCLUDED, outcome)
    run.gate = gate
    return run
