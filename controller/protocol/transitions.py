"""The only writer of a row's state: looks the edge up, refuses what the table lacks, keeps the history."""

from datetime import datetime, timedelta

from contract.states import DeviceState, JobState, RunOutcome, RunState
from controller.db.models import AttemptRow, DeviceRow, DeviceTransitionRow, JobRow, RunRow
from controller.db.outbox import Topic
from controller.db.unit_of_work import UnitOfWork
from controller.states.devices import DEVICE_DEADLINES, DEVICE_MACHINE, DeviceCause
from controller.states.work import (
    ATTEMPT_DEADLINES,
    ATTEMPT_MACHINE,
    JOB_MACHINE,
    LIVE_ATTEMPT_STATES,
    OUTCOME_OF_CAUSE,
    RUN_MACHINE,
    AttemptCause,
    JobCause,
    RunCause,
)


def move_attempt(work: UnitOfWork, attempt: AttemptRow, cause: AttemptCause) -> None:
    """Follow the edge; InvalidTransitionError, and nothing is changed, when there is none."""
    attempt.state = ATTEMPT_MACHINE.next_state(attempt.state, cause)
    attempt.state_since = work.now
    deadline = ATTEMPT_DEADLINES.get(attempt.state)
    attempt.phase_deadline = (
        work.after(deadline.period_s(work.times, attempt.limits)) if deadline is not None else None
    )
    if attempt.state not in LIVE_ATTEMPT_STATES:
        attempt.ended_at = work.now
        work.announce(Topic.ATTEMPT_ENDED, {"attempt_id": attempt.attempt_id})


def move_job(work: UnitOfWork, job: JobRow, cause: JobCause) -> None:
    """Follow the edge; InvalidTransitionError, and nothing is changed, when there is none."""
    job.state = JOB_MACHINE.next_state(job.state, cause)
    if job.state is JobState.DONE:
        job.outcome = OUTCOME_OF_CAUSE[cause]
        job.done_at = work.now
    elif job.state is JobState.QUEUED:
        work.wake_claims()


def move_run(work: UnitOfWork, run: RunRow, cause: RunCause, outcome: RunOutcome | None = None) -> None:
    """Follow the edge; the last one carries the outcome. InvalidTransitionError when there is none."""
    run.state = RUN_MACHINE.next_state(run.state, cause)
    if run.state is RunState.COMPLETED:
        run.outcome = outcome
        run.completed_at = work.now
    work.announce(Topic.RUN_CHANGED, {"run_id": run.run_id})


def move_device(
    work: UnitOfWork, device: DeviceRow, cause: DeviceCause, detail: str = "", actor: str = ""
) -> None:
    """Follow the edge and keep it in the device's history; InvalidTransitionError when there is none.

    `actor` is the person who decided it; empty where the farm did.
    """
    before = device.state
    device.state = DEVICE_MACHINE.next_state(before, cause)
    device.state_since = work.now
    device.state_deadline = _device_deadline(work, device)
    if device.state is not DeviceState.LEASED:
        work.wake_claims()
    work.session.add(
        DeviceTransitionRow(
            device_id=device.device_id,
            from_state=before,
            cause=cause.value,
            to_state=device.state,
            detail=detail,
            principal=actor,
            at=work.now,
        )
    )


def _device_deadline(work: UnitOfWork, device: DeviceRow) -> datetime | None:
    deadline = DEVICE_DEADLINES.get(device.state)
    if deadline is not None:
        return work.after(deadline.period_s(work.times))
    if device.state is DeviceState.QUARANTINED and device.rechecks < len(work.times.recheck_s):
        return work.now + timedelta(seconds=work.times.recheck_s[device.rechecks])
    return None
